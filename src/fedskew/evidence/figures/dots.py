"""Every seed a dot, the mean a bar, a row per label."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedskew.evidence.figures.declared import Figure, Rows
from fedskew.evidence.observations import estimate, select, values_of
from fedskew.report.figures.style import COLOURS, GREY, new_figure, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn


def dots(figure: Figure, rows: Rows, _: Rows) -> Drawn:
    """Every seed a dot, the mean a bar, a row per label."""
    labels = values_of(rows, figure.lines)
    drawn = new_figure(figure.width, 0.36 * len(labels) + 1.2)
    axes = drawn.subplots()
    for place, label in enumerate(labels):
        mine = select(rows, {figure.lines: label})
        values = [row.number(figure.figure) for row in mine]
        axes.plot(values, [place] * len(values), "o", color=COLOURS[0], markersize=5, alpha=0.8)
        mean = estimate(mine, figure.figure).mean
        axes.plot([mean] * 2, [place - 0.3, place + 0.3], color=COLOURS[3], linewidth=2)
        if label == figure.level_of:
            axes.axvline(mean, color=GREY, linewidth=1, zorder=0)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel(figure.x_title or figure.figure)
    title(axes, figure.title, figure.under)
    return drawn
