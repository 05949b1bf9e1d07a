"""How many examples clients have: a histogram, on a logarithmic axis when sizes differ much."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedskew.measure.counts import plural
from fedskew.measure.measurement import Measurement
from fedskew.report.figures.style import (
    COLOURS,
    INK,
    SOFT,
    new_figure,
    title,
    whole_numbers,
    with_commas,
)
from fedskew.types import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOG_FROM = 20.0  # largest / smallest
MOST_BINS = 40


def size_bins(sizes: Floats) -> tuple[Floats, bool]:
    """(edges, whether they are logarithmic).

    Edges lie between whole numbers, so that no bin is empty by construction.

    >>> size_bins(np.array([3.0, 3.0]))
    (array([2.5, 3.5]), False)
    """
    low, high = float(sizes.min()), float(sizes.max())
    bins = int(np.clip(2 * np.sqrt(len(sizes)), 5, MOST_BINS))
    if high / low > LOG_FROM:
        edges = np.unique(np.floor(np.geomspace(low, high + 1, bins + 1))) - 0.5
        return edges, True
    step = max(1, int(np.ceil((high - low + 1) / bins)))
    return np.arange(low - 0.5, high + step, step), False


def draw_sizes(measurement: Measurement) -> Figure:
    """The sizes of the clients that have examples."""
    sizes = measurement.counts.table.sum(axis=1)
    sizes = sizes[sizes > 0].astype(np.float64)
    edges, logarithmic = size_bins(sizes)
    figure = new_figure(7.0, 3.2)
    axes = figure.subplots()
    heights, _, _ = axes.hist(
        sizes, bins=edges.tolist(), color=COLOURS[0], edgecolor="white", linewidth=0.4
    )
    if logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(with_commas)
        axes.xaxis.set_minor_formatter(lambda value, _: "")
    else:
        whole_numbers(axes.xaxis)
    whole_numbers(axes.yaxis)
    median = float(np.median(sizes))
    axes.axvline(median, color=COLOURS[3], linewidth=1.6)
    axes.text(
        median, float(np.max(heights)) * 1.03, f" median {median:,.0f}", color=INK, va="bottom"
    )
    axes.set_ylim(0, float(np.max(heights)) * 1.18)
    axes.set_xlabel("examples of a client" + (" (logarithmic)" if logarithmic else ""))
    axes.set_ylabel("clients")
    axes.grid(axis="y", color=SOFT, alpha=0.2, linewidth=0.6)
    axes.set_axisbelow(True)
    low, high = f"{sizes.min():,.0f}", f"{sizes.max():,.0f}"
    spread = (
        f"{high} examples each"
        if low == high
        else f"{low} to {high} examples, Gini {measurement.figures.size_gini:.2f}"
    )
    title(axes, f"Sizes of {plural(len(sizes), 'client')}: {spread}", measurement.counts.source)
    return figure
