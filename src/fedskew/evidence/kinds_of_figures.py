"""The kinds of figures a page can have; a new one is a function here and a line in ``KINDS``.

Every function gets the declaration, the rows that belong to it and all rows, and returns a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.accounting.fairness import ecdf
from fedskew.compare.estimates import Estimate, mean_interval
from fedskew.evidence.fields import elsewhere
from fedskew.evidence.observations import Observation, Where, estimate, select, values_of
from fedskew.report.figures.style import (
    COLOURS,
    GREY,
    INK,
    SOFT,
    new_figure,
    title,
    with_commas,
)
from fedskew.types import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn

X_TITLES = {"rounds": "round", "clock": "simulated seconds", "traffic": "bytes sent"}
DASHES = ("--", "-.", ":", (0, (1, 1)))
Rows = Sequence[Observation]


@dataclass(frozen=True)
class Figure:
    """A figure of the page."""

    file: str
    kind: str
    title: str = ""
    under: str = ""  # small print in the figure
    caption: str = ""  # below it on the page
    where: Where = field(default_factory=dict)
    figure: str = "final"
    lines: str = ""  # axis: a line, colour or row per label
    panels: str = ""  # axis: a panel per label
    x: Sequence[str] = ("rounds",)  # of curves: a row of panels each
    x_axis: str = ""  # of lines and heat maps: the axis whose labels stand below
    log: Sequence[str] = ()  # of x, or the x_axis: on a logarithmic scale
    x_title: str = ""
    y_title: str = ""
    format: str = ".3f"  # of numbers in a heat map
    band: bool = True  # the interval over seeds
    smooth: int = 1  # running mean over so many evaluations
    thick: Mapping[str, Any] = field(default_factory=dict)  # {figure, where}: which lines
    beside: Sequence[str] = ()  # lines that are shown in grey
    order: str = ""  # of bars: by which list
    unit: str = ""  # of that list
    level: float | None = None  # a grey line
    level_of: str = ""  # a grey line at this label's mean
    seed: int = 0  # of bars: which
    width: float = 8.0
    height: float = 3.6


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


# ---------------------------------------------------------------- curves


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
    grid[0, 0].legend(loc="lower right", fontsize=8)
    return drawn


def _curve_panel(axes: Axes, figure: Figure, rows: Rows, everything: Rows, x: str) -> None:
    for number, label in enumerate(values_of(rows, figure.lines)):
        mine = select(rows, {figure.lines: label})
        place, found = _curve(mine, x, figure.smooth)
        thick = _is_thick(figure, mine[0], everything)
        _line(axes, figure, place, found, COLOURS[number % len(COLOURS)], label, thick)
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


def _line(
    axes: Axes,
    figure: Figure,
    places: Floats,
    found: Sequence[Estimate],
    colour: str,
    label: str,
    thick: bool = False,
) -> None:
    """A mean, with its interval where there is one."""
    width = 2.6 if thick else 1.3
    axes.plot(places, [e.mean for e in found], color=colour, linewidth=width, label=label)
    if figure.band:
        low = [e.mean if np.isnan(e.low) else e.low for e in found]
        high = [e.mean if np.isnan(e.high) else e.high for e in found]
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)


def _is_thick(figure: Figure, row: Observation, everything: Rows) -> bool:
    if not figure.thick:
        return False
    found = elsewhere(everything, figure.thick["where"], row.labels)
    return any(other.number(figure.thick["figure"]) > 0 for other in found)


# ---------------------------------------------------------------- a figure against an axis


def lines(figure: Figure, rows: Rows, _: Rows) -> Drawn:
    """A figure against an axis whose labels are numbers, a line per label of another."""
    drawn = new_figure(figure.width, figure.height)
    axes = drawn.subplots()
    for number, label in enumerate(values_of(rows, figure.lines)):
        mine = select(rows, {figure.lines: label})
        places = values_of(mine, figure.x_axis)
        found = [estimate(select(mine, {figure.x_axis: p}), figure.figure) for p in places]
        x = np.array([float(place) for place in places])
        _line(axes, figure, x, found, COLOURS[number % len(COLOURS)], label)
    if figure.x_axis in figure.log:
        axes.set_xscale("log")
    axes.set_xlabel(figure.x_title or figure.x_axis)
    axes.set_ylabel(figure.y_title or figure.figure)
    axes.legend(fontsize=8)
    title(axes, figure.title, figure.under)
    return drawn


def heat(figure: Figure, rows: Rows, _: Rows) -> Drawn:
    """Means of a figure as a map: ``lines`` down, ``x_axis`` across, the number in every field."""
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
    drawn = new_figure(figure.width, figure.height)
    axes = drawn.subplots()
    axes.imshow(means, cmap="cividis", aspect="auto")
    middle = (np.nanmin(means) + np.nanmax(means)) / 2
    for (row, column), mean in np.ndenumerate(means):
        if not np.isnan(mean):
            ink = "white" if mean < middle else "black"
            axes.text(column, row, format(mean, figure.format), ha="center", va="center", color=ink)
    axes.set_xticks(range(len(across)), across)
    axes.set_yticks(range(len(down)), down)
    title(axes, figure.title, figure.under)
    return drawn


# ---------------------------------------------------------------- clients


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
        label: {"color": SOFT, "linestyle": DASHES[number % len(DASHES)], "linewidth": 1.8}
        for number, label in enumerate(grey)
    }


KINDS: Mapping[str, Callable[[Figure, Rows, Rows], Any]] = {
    "dots": dots,
    "curves": curves,
    "lines": lines,
    "heat": heat,
    "bars": bars,
    "distribution": distribution,
}
