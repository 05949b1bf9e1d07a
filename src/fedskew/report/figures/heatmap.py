"""Label heat map: a column per client, sorted by cluster; dark = much of its data has the label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedskew.measure.counts import plural
from fedskew.measure.measurement import Measurement
from fedskew.report.figures.style import (
    GREY,
    INK,
    SOFT,
    cluster_colours,
    is_dark,
    new_figure,
    short,
    title,
    whole_numbers,
)
from fedskew.types import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BANDS = 400  # columns that can still be told apart on a page
MOST_TICKS = 30


@dataclass(frozen=True)
class Bands:
    """Neighbouring clients averaged, cluster by cluster."""

    edges: Ints  # (B + 1,) in clients
    rows: Floats  # (B, C)
    cluster_edges: Ints  # (k + 1,) in clients
    clusters: Ints  # (k,) which cluster lies between two edges


def sort_clients(rows: Floats, labels: Ints) -> Ints:
    """Positions of the clients: clusters by their main label, clients in a cluster by theirs.

    Then by how much they have of it.

    >>> sort_clients(np.array([[0, 1.0], [1, 0], [0.4, 0.6]]), np.array([0, 1, 0]))
    array([1, 0, 2])
    """
    groups, group_of = np.unique(labels, return_inverse=True)
    sums = np.zeros((len(groups), rows.shape[1]))
    np.add.at(sums, group_of, rows)
    main, share = rows.argmax(axis=1), rows.max(axis=1)
    # clients without a cluster come last
    rank = np.lexsort((groups, sums.argmax(axis=1), groups < 0))
    place = np.argsort(rank)
    return np.lexsort((-share, main, place[group_of]))


def make_bands(rows: Floats, labels: Ints, most: int = MOST_BANDS) -> Bands:
    """Rows and labels in sorted order cut into at most about ``most`` bands.

    No band crosses a cluster if that is possible.
    """
    starts = np.flatnonzero(np.diff(labels, prepend=labels[0] - 1))
    cluster_edges = np.append(starts, len(labels))
    cuts = cluster_edges if len(starts) <= most else np.array([0, len(labels)])
    num_bands = np.maximum(1, np.round(most * np.diff(cuts) / len(labels))).astype(int)
    pieces = [
        np.linspace(a, b, min(n, b - a) + 1)[:-1]
        for a, b, n in zip(cuts[:-1], cuts[1:], num_bands, strict=True)
    ]
    edges = np.append(np.concatenate(pieces).astype(np.int64), len(labels))
    means = np.add.reduceat(rows, edges[:-1], axis=0) / np.diff(edges)[:, None]
    return Bands(edges, means, cluster_edges, labels[starts])


def draw_heatmap(measurement: Measurement) -> Figure:
    """The heat map of a measurement, by its chosen grouping."""
    grouping = measurement.chosen_grouping
    active = np.flatnonzero(measurement.signal.known)
    rows, labels = measurement.signal.rows[active], grouping.clustering.labels[active]
    order = sort_clients(rows, labels)
    bands = make_bands(rows[order], labels[order])
    num_labels = rows.shape[1]
    height = float(np.clip(1.7 + 0.21 * min(num_labels, 40), 2.8, 9.0))
    figure = new_figure(8.5, height)
    strip, axes = figure.subplots(
        2, 1, sharex=True, gridspec_kw={"height_ratios": (0.24, height - 1.2)}
    )
    image = axes.pcolormesh(
        bands.edges,
        np.arange(num_labels + 1),
        bands.rows.T,
        cmap="Blues",
        vmin=0,
        vmax=_top(bands),
        rasterized=True,
        linewidth=0,
    )
    _separate(axes, bands)
    _draw_strip(strip, bands, labels)
    _name_labels(axes, measurement)
    per_band = len(active) / len(bands.rows)
    merged = f" (a column is the mean of about {per_band:,.0f} clients)" if per_band >= 1.5 else ""
    axes.set_xlabel(f"clients, sorted by cluster{merged}")
    axes.set_ylabel("label")
    bar = figure.colorbar(image, ax=[strip, axes], pad=0.01, aspect=30)
    bar.set_label("share of the client's examples")
    bar.outline.set_visible(False)
    how = f"{plural(grouping.clustering.k, 'cluster')}, {grouping.how}"
    title(strip, f"Labels of {plural(len(active), 'client')}: {how}", measurement.counts.source)
    return figure


def _top(bands: Bands) -> float:
    """The darkest colour: the largest share shown, in tenths; so pale figures can be read too."""
    return float(np.ceil(np.round(bands.rows.max() * 10, 6)) / 10)


def _separate(axes: Axes, bands: Bands) -> None:
    if len(bands.clusters) <= 60:
        for edge in bands.cluster_edges[1:-1].tolist():
            axes.axvline(edge, color="white", linewidth=1.6)
            axes.axvline(edge, color=SOFT, linewidth=0.5)


def _draw_strip(strip: Axes, bands: Bands, labels: Ints) -> None:
    """The clusters above the heat map; numbers where there is room."""
    colours, named = cluster_colours(labels)
    whole = bands.cluster_edges[-1]
    widths = np.diff(bands.cluster_edges)
    strip.bar(
        bands.cluster_edges[:-1],
        1,
        width=widths,
        align="edge",
        color=[colours[c] if c >= 0 else GREY for c in bands.clusters.tolist()],
        edgecolor="white",
        linewidth=0.8 if len(widths) <= 60 else 0,
    )
    for left, width, cluster in zip(
        bands.cluster_edges, widths, bands.clusters.tolist(), strict=False
    ):
        if cluster in named and width / whole > 0.012 * len(str(cluster)):
            ink = "white" if is_dark(colours[cluster]) else INK
            strip.text(
                left + width / 2,
                0.46,
                str(cluster),
                ha="center",
                va="center",
                fontsize=8,
                color=ink,
            )
    strip.text(
        -0.008, 0.46, "cluster", transform=strip.transAxes, ha="right", va="center", color=SOFT
    )
    strip.set_ylim(0, 1)
    strip.set_axis_off()


def _name_labels(axes: Axes, measurement: Measurement) -> None:
    names = measurement.counts.labels
    step = max(1, -(-len(names) // MOST_TICKS))
    ticks = np.arange(0, len(names), step)
    axes.set_yticks(ticks + 0.5, [short(names[i]) for i in ticks.tolist()])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    whole_numbers(axes.xaxis)
