"""Figures of a comparison for papers: learning curves with bands, and an ECDF over clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedskew.compare.comparison import Comparison
from fedskew.compare.estimates import mean_interval
from fedskew.compare.ranking import Entry
from fedskew.errors import DataError, did_you_mean
from fedskew.experiment.figures import Resource
from fedskew.report.figures.style import METHOD_COLOURS, drawing, new_figure, save, short
from fedskew.types import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

X_LABELS: dict[Resource, tuple[str, float]] = {  # what stands below the axis, and its unit
    "rounds": ("round", 1.0),
    "bytes": ("MB sent, all directions", 1e6),
    "time": ("simulated time (s)", 1.0),
    "energy": ("energy of the clients (Wh)", 3600.0),
}
LINES = ("-", "--", ":")  # by nine methods each
REFERENCE, REFERENCE_LINES = "#57606a", ("--", ":", "-.", "-")


def curve_of(entry: Entry, resource: Resource) -> tuple[Floats, Floats, Floats, Floats]:
    """(x, mean, low, high) at the evaluations all runs of a method have.

    The bounds are the 95 % interval of the mean.
    """
    length = min(len(run.curve.positions) for run in entry.runs)
    spent = [run.spent(resource)[run.curve.positions[:length]] for run in entry.runs]
    columns = np.array([run.curve.accuracy[:length] for run in entry.runs]).T
    means = [mean_interval(column) for column in columns]
    low = np.array([m.mean if np.isnan(m.low) else m.low for m in means])
    high = np.array([m.mean if np.isnan(m.high) else m.high for m in means])
    return np.mean(spent, axis=0), np.array([m.mean for m in means]), low, high


def draw_curves(
    comparison: Comparison, *, x: Resource = "rounds", width: float = 5.0, height: float = 3.4
) -> Figure:
    """Accuracy against a resource, a line per method, mean over seeds with its 95 % interval."""
    if x not in X_LABELS:
        raise DataError("draw_curves", f"x = {x!r} is unknown", did_you_mean(str(x), X_LABELS))
    with drawing():
        figure = new_figure(width, height)
        axes = figure.subplots()
        label, unit = X_LABELS[x]
        for number, entry in enumerate(comparison.entries):
            place, mean, low, high = curve_of(entry, x)
            colour, line = _look(number)
            axes.plot(
                place / unit, mean, line, color=colour, label=short(entry.label), linewidth=1.4
            )
            axes.fill_between(place / unit, low, high, color=colour, alpha=0.15, linewidth=0)
        return _finish(figure, axes, label, "accuracy")


def draw_ecdf(comparison: Comparison, *, width: float = 5.0, height: float = 3.4) -> Figure:
    """Share of clients whose accuracy is at most a, pooled over seeds (docs/methods.md 9.7).

    A line per method; references grey.
    """
    with drawing():
        figure = new_figure(width, height)
        axes = figure.subplots()
        looks = [(entry, _look(number)) for number, entry in enumerate(comparison.entries)]
        beside = [
            (entry, (REFERENCE, REFERENCE_LINES[number % len(REFERENCE_LINES)]))
            for number, entry in enumerate(comparison.references or ())
        ]
        for entry, (colour, line) in looks + beside:
            values = np.concatenate(
                [np.array(r.clients.get("accuracy", []), np.float64) for r in entry.runs]
            )
            values = np.sort(values[~np.isnan(values)])
            if len(values):
                axes.ecdf(
                    values, linestyle=line, color=colour, label=short(entry.label), linewidth=1.4
                )
        axes.set_xlim(0, 1)
        return _finish(figure, axes, "accuracy on the client's own test set", "share of clients")


def save_paper_figures(comparison: Comparison, folder: Path) -> list[Path]:
    """Both figures as PNG and SVG.

    Curves also against every other resource that all runs have an account of.
    """
    figures: dict[str, Callable[[], Figure]] = {"ecdf": lambda: draw_ecdf(comparison)}
    for resource in X_LABELS:
        if not np.isnan(comparison.smallest_total(resource)):
            figures[f"curves-{resource}"] = lambda resource=resource: draw_curves(
                comparison, x=resource
            )  # type: ignore[misc]
    with drawing():
        return [path for name, draw in figures.items() for path in save(draw(), folder, name)]


def _look(number: int) -> tuple[str, str]:
    """Colour and line as the page has them (``colour`` and ``dash`` in elements.js)."""
    size = len(METHOD_COLOURS)
    return METHOD_COLOURS[number % size], LINES[min(number // size, len(LINES) - 1)]


def _finish(figure: Figure, axes: Axes, x: str, y: str) -> Figure:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_ylim(0, 1)
    axes.grid(axis="y", alpha=0.25, linewidth=0.6)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)
    return figure
