"""Accuracy by round, simulated time or bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.compare.estimates import Estimate, mean_interval
from fedskew.evidence.fields import elsewhere
from fedskew.evidence.figures.declared import Figure, Rows, draw_line
from fedskew.evidence.observations import Observation, select, values_of
from fedskew.report.figures.style import COLOURS, GREY, new_figure, title, with_commas
from fedskew.types import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn

X_TITLES = {"rounds": "round", "clock": "simulated seconds", "traffic": "bytes sent"}


def curves(figure: Figure, rows: Rows, everything: Rows) -> Drawn:
    """Accuracy by round, simulated time or bytes, mean over seeds: a row of panels per ``x``, a
    column per label of ``panels``; side by side if there is one column.
    """
    labels = values_of(rows, figure.panels) if figure.panels else [""]
    size = (len(figure.x), len(labels)) if figure.panels else (1, len(figure.x))
    drawn = new_figure(figure.width, figure.height)
    grid: Any = drawn.subplots(*size, sharey=True, squeeze=False)
    for column, label in enumerate(labels):
        mine = select(rows, {figure.panels: label}) if figure.panels else rows
        for row, x in enumerate(figure.x):
            axes = grid[row, column] if figure.panels else grid[0, row]
            _curve_panel(axes, figure, mine, everything, x)
            name = f"{figure.panels} = {label}" if figure.panels else f"by {X_TITLES.get(x, x)}"
            title(axes, name)
    for axes in grid[:, 0]:
        axes.set_ylabel(figure.y_title or "accuracy")
    handles, names = grid[0, 0].get_legend_handles_labels()
    shown = drawn.legend(handles, names, loc="outside lower center", ncols=4, fontsize=8)
    for line in shown.get_lines():
        line.set_linewidth(1.3)
    return drawn


def _curve_panel(axes: Axes, figure: Figure, rows: Rows, everything: Rows, x: str) -> None:
    for number, label in enumerate(values_of(rows, figure.lines)):
        mine = select(rows, {figure.lines: label})
        place, found = _curve(mine, x, figure.smooth)
        thick = _is_thick(figure, mine[0], everything)
        draw_line(axes, figure, place, found, COLOURS[number % len(COLOURS)], label, thick)
    if figure.level is not None:
        axes.axhline(figure.level, color=GREY, linewidth=1.0, zorder=0)
    if x in figure.log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(with_commas)
        axes.xaxis.set_minor_formatter("")
    axes.set_xlabel(X_TITLES.get(x, x))


def _curve(rows: Rows, x: str, smooth: int) -> tuple[Floats, list[Estimate]]:
    """Where, and what there: without the untrained model, whose time may be 0."""
    length = min(len(row.row["curve"]) for row in rows)
    accuracy = np.array([row.row["curve"][1:length] for row in rows], np.float64)
    places = np.array([row.row[x][:length] for row in rows], np.float64).mean(axis=0)
    width = smooth if length > 4 * smooth else 1
    running = [np.convolve(one, np.ones(width) / width, mode="valid") for one in accuracy]
    return places[width:], [mean_interval(seeds) for seeds in np.array(running).T]


def _is_thick(figure: Figure, row: Observation, everything: Rows) -> bool:
    if not figure.thick:
        return False
    found = elsewhere(everything, figure.thick["where"], row.labels)
    return any(other.number(figure.thick["figure"]) > 0 for other in found)
