"""Figures of a page as ``study.toml`` declares them; a new kind is a function and a line in
``KINDS``.

Every function gets the declaration and the rows that belong to it, and returns a figure. Seeds are
shown as dots, or as a mean with its 95 % t interval as a band.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.accounting.fairness import ecdf
from fedskew.compare.estimates import mean_interval
from fedskew.errors import StudyError, did_you_mean
from fedskew.evidence.fields import check_entries
from fedskew.evidence.observations import Observation, Where, estimate, select, values_of
from fedskew.report.figures.style import (
    COLOURS,
    DPI,
    GREY,
    INK,
    SOFT,
    drawing,
    new_figure,
    title,
    with_commas,
)
from fedskew.types import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn

DASHES = ("--", "-.", ":", (0, (1, 1)))
X_TITLES = {"rounds": "round", "clock": "simulated seconds", "traffic": "bytes sent"}


@dataclass(frozen=True)
class Figure:
    """A figure of the page."""

    file: str
    kind: str
    title: str = ""
    under: str = ""  # small print
    where: Where = field(default_factory=dict)
    figure: str = "final"
    lines: str = ""  # axis: a line, colour or row of dots per label
    panels: str = ""  # axis: a panel per label
    x: Sequence[str] = ("rounds",)  # of curves: a row of panels each
    x_axis: str = ""  # of lines: the axis whose labels are numbers
    log: Sequence[str] = ()  # of x: on a logarithmic scale
    x_title: str = ""
    y_title: str = ""
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


def read_figure(where: str, raw: Mapping[str, Any]) -> Figure:
    """A figure as it stands in ``study.toml``, checked."""
    check_entries(where, raw, Figure)
    for needed in ("file", "kind"):
        if needed not in raw:
            raise StudyError(where, f"a figure has no {needed}", f"Add {needed}")
    if raw["kind"] not in KINDS:
        hint = did_you_mean(str(raw["kind"]), KINDS)
        raise StudyError(where, f"there is no kind of figure '{raw['kind']}'", hint)
    return Figure(**raw)


def draw(figure: Figure, everything: Sequence[Observation], folder: Path) -> Path | None:
    """Write a figure; None where there is nothing to show."""
    rows = select(everything, figure.where)
    if not rows:
        return None
    path = folder / figure.file
    with drawing():
        drawn = KINDS[figure.kind](figure, rows, everything)
        drawn.savefig(path, dpi=DPI, metadata={"Software": None})
    return path


# ---------------------------------------------------------------- kinds


def dots(figure: Figure, rows: Sequence[Observation], _: Sequence[Observation]) -> Drawn:
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


def curves(figure: Figure, rows: Sequence[Observation], everything: Sequence[Observation]) -> Drawn:
    """Accuracy by round, simulated time or bytes: a mean over seeds with its interval."""
    panels = values_of(rows, figure.panels) if figure.panels else [""]
    drawn = new_figure(figure.width, figure.height)
    tall = bool(figure.panels)
    size = (len(figure.x), len(panels)) if tall else (1, len(figure.x))
    grid = np.array(drawn.subplots(*size, sharey=True, squeeze=False)).reshape(size)
    for number, panel in enumerate(panels):
        mine = select(rows, {figure.panels: panel}) if figure.panels else list(rows)
        for place, x in enumerate(figure.x):
            axes = grid[place, number] if tall else grid[0, place]
            _curve_panel(axes, figure, mine, everything, x)
            name = X_TITLES.get(x, x)
            title(axes, f"{figure.panels} {panel}" if tall else f"by {name}", figure.under)
    for axes in grid[:, 0]:
        axes.set_ylabel(figure.y_title or "accuracy")
    grid[0, 0].legend(loc="lower right", fontsize=8)
    return drawn


def _curve_panel(
    axes: Axes,
    figure: Figure,
    rows: Sequence[Observation],
    everything: Sequence[Observation],
    x: str,
) -> None:
    for number, label in enumerate(values_of(rows, figure.lines)):
        mine = select(rows, {figure.lines: label})
        place, mean, low, high = _band(mine, x, figure.smooth)
        width = 2.6 if _is_thick(figure, mine[0], everything) else 1.3
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(place, mean, color=colour, linewidth=width, label=label)
        axes.fill_between(place, low, high, color=colour, alpha=0.15, linewidth=0)
    if figure.level is not None:
        axes.axhline(figure.level, color=GREY, linewidth=1.0, zorder=0)
    if x in figure.log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(with_commas)
        axes.xaxis.set_minor_formatter("")
    axes.set_xlabel(X_TITLES.get(x, x))


def _band(
    rows: Sequence[Observation], x: str, smooth: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """(x, mean, low, high) without the untrained model, whose time may be 0."""
    length = min(len(row.row["curve"]) for row in rows)
    curves = np.array([row.row["curve"][:length] for row in rows], np.float64)
    places = np.array([row.row[x][:length] for row in rows], np.float64).mean(axis=0)
    width = smooth if length > 4 * smooth else 1
    running = np.array([np.convolve(c[1:], np.ones(width) / width, mode="valid") for c in curves])
    found = [mean_interval(column) for column in running.T]
    low = np.array([f.mean if np.isnan(f.low) else f.low for f in found])
    high = np.array([f.mean if np.isnan(f.high) else f.high for f in found])
    return places[width:], np.array([f.mean for f in found]), low, high


def _is_thick(figure: Figure, row: Observation, everything: Sequence[Observation]) -> bool:
    if not figure.thick:
        return False
    found = select(everything, figure.thick["where"])
    same = [
        f
        for f in found
        if all(
            row.labels.get(a, v) == v for a, v in f.labels.items() if a not in figure.thick["where"]
        )
    ]
    return any(f.number(figure.thick["figure"]) > 0 for f in same)


def bars(figure: Figure, rows: Sequence[Observation], _: Sequence[Observation]) -> Drawn:
    """A list of one seed as bars, in the order of another list; a panel per label."""
    panels = values_of(rows, figure.panels)
    drawn = new_figure(figure.width, figure.height)
    every = np.atleast_1d(drawn.subplots(1, len(panels), sharey=True))
    for number, (axes, panel) in enumerate(zip(every, panels, strict=True)):
        (row,) = [r for r in select(rows, {figure.panels: panel}) if r.seed == figure.seed]
        keys = np.array(row.row[figure.order], np.float64)
        order = np.argsort(keys)
        heights = np.array(row.row[figure.figure], np.float64)[order]
        axes.bar(np.arange(len(heights)), heights, color=COLOURS[(2 * number) % 9], width=0.8)
        axes.axhline(heights.mean(), color=GREY, linewidth=1.2, zorder=0)
        ends = [f"{keys[order[end]]:.0f} {figure.unit}" for end in (0, -1)]
        axes.set_xticks([0, len(heights) - 1], ends)
        axes.set_xlabel(figure.x_title, color=INK)
        title(axes, panel)
    every[0].set_ylabel(figure.y_title)
    return drawn


def distribution(figure: Figure, rows: Sequence[Observation], _: Sequence[Observation]) -> Drawn:
    """Share of clients whose accuracy is at most a, clients of all seeds together."""
    panels = values_of(rows, figure.panels)
    drawn = new_figure(figure.width, figure.height)
    every = np.atleast_1d(drawn.subplots(1, len(panels), sharey=True))
    labels = values_of(rows, figure.lines)
    methods = [label for label in labels if label not in figure.beside]
    for axes, panel in zip(every, panels, strict=True):
        for label in labels:
            mine = select(rows, {figure.panels: panel, figure.lines: label})
            pooled = [value for row in mine for value in row.row[figure.figure]]
            values, shares = ecdf(np.array(pooled, np.float64))
            grey = label in figure.beside
            look: dict[str, Any] = {
                "color": SOFT if grey else COLOURS[methods.index(label) % len(COLOURS)],
                "linestyle": DASHES[list(figure.beside).index(label) % 4] if grey else "-",
                "linewidth": 1.8 if grey else 1.2,
            }
            axes.step([0, *values, 1], [0, *shares, 1], where="post", label=label, **look)
        axes.set_xlabel(figure.x_title)
        axes.set_xlim(0, 1.005)
        title(axes, panel)
    every[0].set_ylabel(figure.y_title)
    handles, names = every[0].get_legend_handles_labels()
    drawn.legend(handles, names, loc="outside right center")
    return drawn


Kind = Callable[[Figure, Sequence[Observation], Sequence[Observation]], Any]
KINDS: dict[str, Kind] = {
    "dots": dots,
    "curves": curves,
    "bars": bars,
    "distribution": distribution,
}
