"""What single clients have: lists that a row holds, as bars or as a distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.accounting.fairness import ecdf
from fedskew.evidence.figures.declared import Figure, Rows
from fedskew.evidence.observations import select, values_of
from fedskew.report.figures.style import COLOURS, GREY, INK, SOFT, new_figure, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

# of what stands beside the methods
GREYS = ((INK, "--"), (SOFT, "-."), (INK, ":"), (GREY, "-"))


def bars(figure: Figure, rows: Rows, _: Rows) -> Drawn:
    """A list of one seed as bars, in the order of another list; a panel per label."""
    labels = values_of(rows, figure.panels)
    drawn = new_figure(figure.width, figure.height)
    every: Any = drawn.subplots(1, len(labels), sharey=True, squeeze=False)[0]
    for number, (axes, label) in enumerate(zip(every, labels, strict=True)):
        mine = select(rows, {figure.panels: label})
        row = next((one for one in mine if one.seed == figure.seed), mine[0]).row
        keys = np.array(row[figure.order], np.float64)
        order = np.argsort(keys)
        heights = np.array(row[figure.figure], np.float64)[order]
        axes.bar(np.arange(len(heights)), heights, color=COLOURS[number % 9], width=0.8)
        axes.axhline(heights.mean(), color=GREY, linewidth=1.2, zorder=0)
        ends = [f"{keys[order[end]]:.0f} {figure.unit}" for end in (0, -1)]
        axes.set_xticks([0, len(heights) - 1], ends)
        axes.set_xlabel(figure.x_title, color=INK)
        title(axes, label)
    every[0].set_ylabel(figure.y_title)
    return drawn


def distribution(figure: Figure, rows: Rows, _: Rows) -> Drawn:
    """Share of clients whose accuracy is at most a, clients of all seeds together."""
    drawn = new_figure(figure.width, figure.height)
    panels = values_of(rows, figure.panels)
    every: Any = drawn.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(every, panels, strict=True):
        mine = select(rows, {figure.panels: panel})
        for label, look in _looks(figure, values_of(rows, figure.lines)).items():
            found = select(mine, {figure.lines: label})
            pooled = [value for one in found for value in one.row[figure.figure]]
            values, shares = ecdf(np.array(pooled, np.float64))
            axes.step([0, *values, 1], [0, *shares, 1], where="post", label=label, **look)
        axes.set_xlabel(figure.x_title)
        axes.set_xlim(0, 1.005)
        title(axes, f"{figure.panels} = {panel}")
    every[0].set_ylabel(figure.y_title)
    handles, names = every[0].get_legend_handles_labels()
    drawn.legend(handles, names, loc="outside right center")
    return drawn


def _looks(figure: Figure, labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colours for methods; what stands beside them is grey and dashed."""
    methods = [label for label in labels if label not in figure.beside]
    grey = [label for label in labels if label in figure.beside]
    looks: dict[str, dict[str, Any]] = {
        label: {"color": COLOURS[number % len(COLOURS)], "linestyle": "-", "linewidth": 1.3}
        for number, label in enumerate(methods)
    }
    return looks | {
        label: {"color": colour, "linestyle": dash, "linewidth": 1.8}
        for label, (colour, dash) in zip(grey, GREYS * len(grey), strict=False)
    }
