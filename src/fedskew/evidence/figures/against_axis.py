"""A figure against an axis of the study: as lines, or as a map."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.evidence.figures.declared import Figure, Rows, draw_line
from fedskew.evidence.observations import estimate, select, values_of
from fedskew.report.figures.style import COLOURS, new_figure, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn

LETTERS_PER_INCH = 8  # of a map that has names on its left


def lines(figure: Figure, rows: Rows, _: Rows) -> Drawn:
    """A figure against an axis whose labels are numbers, a line per label of another."""
    drawn = new_figure(figure.width, figure.height)
    axes = drawn.subplots()
    for number, label in enumerate(values_of(rows, figure.lines)):
        mine = select(rows, {figure.lines: label})
        places = values_of(mine, figure.x_axis)
        found = [estimate(select(mine, {figure.x_axis: p}), figure.figure) for p in places]
        x = np.array([float(place) for place in places])
        draw_line(axes, figure, x, found, COLOURS[number % len(COLOURS)], label)
    if figure.x_axis in figure.log:
        axes.set_xscale("log")
    axes.set_xlabel(figure.x_title or figure.x_axis)
    axes.set_ylabel(figure.y_title or figure.figure)
    axes.legend(fontsize=8)
    title(axes, figure.title, figure.under)
    return drawn


def heat(figure: Figure, rows: Rows, _: Rows) -> Drawn:
    """Means of a figure as a map: ``lines`` down, ``x_axis`` across, the number in every field; one
    below the other for the labels of ``panels``, each with colours of its own.
    """
    labels = values_of(rows, figure.panels) if figure.panels else [figure.title]
    drawn = new_figure(figure.width, figure.height * len(labels))
    every: Any = drawn.subplots(len(labels), 1, squeeze=False)[:, 0]
    for axes, label in zip(every, labels, strict=True):
        mine = select(rows, {figure.panels: label}) if figure.panels else rows
        _map(axes, figure, mine)
        title(axes, label, figure.under)
    return drawn


def _map(axes: Axes, figure: Figure, rows: Rows) -> None:
    down, across = values_of(rows, figure.lines), values_of(rows, figure.x_axis)
    means = np.array(
        [
            [
                estimate(select(rows, {figure.lines: d, figure.x_axis: a}), figure.figure).mean
                for a in across
            ]
            for d in down
        ]
    )
    axes.imshow(means, cmap="cividis", aspect="auto")
    middle = (np.nanmin(means) + np.nanmax(means)) / 2
    for (row, column), mean in np.ndenumerate(means):
        if not np.isnan(mean):
            ink = "white" if mean < middle else "black"
            axes.text(column, row, format(mean, figure.format), ha="center", va="center", color=ink)
    room = int(LETTERS_PER_INCH * figure.width / len(across))
    axes.set_xticks(range(len(across)), [fill(label, max(room, 6)) for label in across])
    axes.set_yticks(range(len(down)), down)
