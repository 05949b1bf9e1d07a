"""Silhouette against the number of clusters, for every rule, with the number each one chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedskew.measure.groups import Grouping
from fedskew.measure.measurement import Measurement
from fedskew.report.figures.style import COLOURS, SOFT, new_figure, title
from fedskew.types import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE_COLOURS = (COLOURS[0], COLOURS[3], COLOURS[6], COLOURS[5])  # dark blue, rose, teal, wine
MARKERS = ("o", "s", "D", "^")
SIZES = (11, 9, 6, 5)  # equal choices lie on top of each other and stay visible


def draw_silhouette(measurement: Measurement) -> Figure:
    """A line per rule, a large marker at its choice.

    Points where a rule tries parameters rather than numbers of clusters.
    """
    figure = new_figure(7.0, 3.6)
    axes = figure.subplots()
    drawn = [
        _draw_rule(axes, grouping, position)
        for position, grouping in enumerate(measurement.groupings)
    ]
    axes.axhline(0, color=SOFT, linewidth=0.6)
    axes.set_ylabel("mean silhouette")
    axes.set_xlabel("number of clusters")
    if not any(drawn):
        axes.text(
            0.5,
            0.5,
            "nothing to choose: one group",
            ha="center",
            transform=axes.transAxes,
            color=SOFT,
        )
        axes.set_xticks([])
    else:
        most = [
            max(best_by_count(grouping)[0].max(initial=2), grouping.clustering.k)
            for grouping in measurement.groupings
        ]
        _scale(axes, max(most))
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.6)
    title(
        axes,
        "How many clusters? The best silhouette, the fewest among equals",
        measurement.counts.source,
    )
    return figure


def best_by_count(grouping: Grouping) -> tuple[Ints, Floats]:
    """The numbers of clusters a rule tried and the best silhouette of each; empty if none."""
    curve = grouping.clustering.details.get("curve")
    if curve is None:
        return np.empty(0, np.int64), np.empty(0)
    counts = np.asarray(curve["counts"])
    scores = np.asarray(curve["silhouettes"], np.float64)
    usable = np.isfinite(scores) & (counts >= 2)
    # OPTICS, DBSCAN: what leaves too many clients out was never a candidate
    if "noise_fractions" in curve:
        limit = grouping.clustering.details.get("thresholds", {}).get("max_noise")
        usable &= np.asarray(curve["noise_fractions"]) <= (1.0 if limit is None else limit)
    tried = np.unique(counts[usable])
    return tried, np.array([scores[usable & (counts == count)].max() for count in tried.tolist()])


def _draw_rule(axes: Axes, grouping: Grouping, position: int) -> bool:
    counts, scores = best_by_count(grouping)
    clustering = grouping.clustering
    colour = LINE_COLOURS[position % 4]
    marker = MARKERS[position % 4]
    if not len(counts) or clustering.silhouette is None:
        return False
    scanned = "noise_fractions" not in clustering.details["curve"]
    axes.plot(
        counts,
        scores,
        color=colour,
        linewidth=1.4 if scanned else 0,
        marker=marker if not scanned or len(counts) < 40 else "",
        markersize=2.5,
        alpha=0.85 if scanned else 0.6,
    )
    # noise policies and merged clusters may shift the final number a little
    where = int(np.abs(counts - clustering.k).argmin())
    axes.plot(
        [clustering.k],
        [scores[where]],
        color=colour,
        marker=marker,
        markersize=SIZES[position % 4],
        markeredgecolor="white",
        linewidth=1.4 if scanned else 0,
        label=_legend(grouping),
    )
    axes.axvline(clustering.k, color=colour, linewidth=0.7, linestyle=(0, (2, 3)), alpha=0.7)
    return True


def _legend(grouping: Grouping) -> str:
    score = grouping.clustering.silhouette
    choice = f"{grouping.rule.symbol} = {grouping.clustering.k}, silhouette {score:.2f}"
    return f"{grouping.rule.title}\n{grouping.how}\n{choice}\n"


def _scale(axes: Axes, most: int) -> None:
    """Counts from 2 to thousands: a logarithmic axis with plain numbers."""
    ticks = [t for t in (2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if t <= most * 1.05]
    if most > 20:
        axes.set_xscale("log")
        axes.set_xticks(ticks, [str(t) for t in ticks])
        axes.set_xticks([], minor=True)
    else:
        axes.set_xticks(range(2, most + 1))
    axes.set_xlim(1.8, max(most * 1.08, 3.2))
