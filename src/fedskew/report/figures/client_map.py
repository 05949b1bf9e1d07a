"""Map of the clients: near means alike.

Principal components of the square roots of the label proportions, so that straight distance on the
full set of axes is the Hellinger distance (times the square root of two).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedskew.measure.counts import plural
from fedskew.measure.measurement import Measurement
from fedskew.report.figures.style import (
    COLOURS,
    GREY,
    INK,
    SOFT,
    cluster_colours,
    new_figure,
    title,
)
from fedskew.types import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW_CLIENTS = 2_000  # up to here every place is a marker whose area says how many clients lie there
LARGEST_AREA = 700.0  # square points
CELLS = 110  # above, a dot stands for a cell of a grid with this many cells along the longer side


def principal_plane(points: Floats) -> tuple[Floats, Floats]:
    """(K, 2) coordinates on the two main axes, and the share of the variance each explains.

    The sign of an axis is free: its largest loading is made positive, so that a map does not flip
    between machines.
    """
    centred = points - points.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    main = vectors[:, ::-1][:, :2]
    if main.shape[1] < 2:
        main = np.column_stack([main, np.zeros(len(main))])
    main = main * np.sign(main[np.abs(main).argmax(axis=0), [0, 1]] + 1e-300)
    total = max(float(values.sum()), 1e-300)
    shares = np.append(values[::-1][:2], [0.0, 0.0])[:2] / total
    return centred @ main, np.clip(shares, 0, 1)


def draw_map(measurement: Measurement) -> Figure:
    """The map of a measurement, coloured by its chosen grouping."""
    grouping = measurement.chosen_grouping
    active = np.flatnonzero(measurement.signal.known)
    places, shares = principal_plane(np.sqrt(measurement.signal.rows[active]))
    labels = grouping.clustering.labels[active]
    figure = new_figure(6.4, 5.4)
    axes = figure.subplots()
    colours, named = cluster_colours(labels)
    if len(active) <= FEW_CLIENTS:
        _draw_places(axes, places, labels, colours)
    else:
        _draw_cells(axes, places, labels, colours)
    _number_clusters(axes, places, labels, named)
    for axis, share, which in zip((axes.xaxis, axes.yaxis), shares, ("1st", "2nd"), strict=True):
        axis.set_label_text(
            f"{which} principal component of √proportions ({100 * share:.0f} % of the variance)"
        )
    axes.margins(0.08)
    axes.set_aspect("equal", adjustable="datalim")
    left = grouping.clustering.k - len(named)
    rest = f"; grey: {plural(left, 'smaller cluster')}" if left else ""
    what = f"{plural(grouping.clustering.k, 'cluster')}, {grouping.how}{rest}"
    title(axes, f"Map of {plural(len(active), 'client')}", f"{measurement.counts.source}\n{what}")
    return figure


def _colours(labels: Ints, colours: list[str]) -> list[str]:
    return [colours[c] if c >= 0 else GREY for c in labels.tolist()]


def _draw_places(axes: Axes, places: Floats, labels: Ints, colours: list[str]) -> None:
    """One marker per distinct place and cluster: clients with the same labels share a place."""
    grid = np.column_stack([np.round(places / max(float(np.ptp(places)), 1e-12), 3), labels])
    _, first, sizes = np.unique(grid, axis=0, return_index=True, return_counts=True)
    marker = _markers(labels)[first]
    areas = sizes * min(30.0, LARGEST_AREA / sizes.max())
    for shape in sorted(set(marker.tolist())):
        one = marker == shape
        axes.scatter(
            places[first[one], 0],
            places[first[one], 1],
            s=areas[one],
            c=_colours(labels[first[one]], colours),
            marker=shape,
            alpha=0.8,
            linewidths=0.6,
            edgecolors="white",
        )
    if sizes.max() > 1:
        _corner(axes, f"largest marker: {sizes.max():,} clients")


def _markers(labels: Ints) -> NDArray[np.str_]:
    """Circles for the first turn through the palette, then squares; triangles for what is grey."""
    _, named = cluster_colours(labels)
    shape = dict.fromkeys(named[: len(COLOURS)], "o") | dict.fromkeys(named[len(COLOURS) :], "s")
    return np.array([shape.get(cluster, "^") for cluster in labels.tolist()])


def _draw_cells(axes: Axes, places: Floats, labels: Ints, colours: list[str]) -> None:
    """Many clients: a dot per grid cell, in the colour of its most frequent cluster.

    Larger for more clients (logarithmic).
    """
    size = max(float(np.ptp(places, axis=0).max()), 1e-12) / CELLS
    cells, cell_of = np.unique(
        np.floor(places / size).astype(np.int64), axis=0, return_inverse=True
    )
    crowd = np.bincount(cell_of.reshape(-1))
    pairs, members = np.unique(
        np.column_stack([cell_of.reshape(-1), labels]), axis=0, return_counts=True
    )
    winner = np.lexsort((members, pairs[:, 0]))[
        np.searchsorted(np.sort(pairs[:, 0]), np.arange(len(cells)), side="right") - 1
    ]
    full = 330.0 / CELLS  # points: the axes are about 330 wide
    area = full**2 * (0.3 + 0.7 * np.log1p(crowd) / np.log1p(crowd.max()))
    middle = (cells + 0.5) * size
    axes.scatter(
        middle[:, 0],
        middle[:, 1],
        s=area,
        c=_colours(pairs[winner, 1], colours),
        linewidths=0,
        rasterized=True,
    )
    _corner(axes, f"a dot: 1 to {crowd.max():,} clients (logarithmic)")


def _corner(axes: Axes, text: str) -> None:
    axes.text(
        1, 0.01, text, transform=axes.transAxes, ha="right", va="bottom", color=SOFT, fontsize=7
    )


def _number_clusters(axes: Axes, places: Floats, labels: Ints, named: list[int]) -> None:
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2.5, foreground="white")]
    taken = np.empty((0, 2))
    apart = 0.04 * max(float(np.ptp(places, axis=0).max()), 1e-12)
    for cluster in sorted(named, key=lambda c: -int((labels == c).sum())) if len(named) > 1 else []:
        members = places[labels == cluster]
        middle = members[np.linalg.norm(members - np.median(members, axis=0), axis=1).argmin()]
        if (np.abs(taken - middle) < apart).all(axis=1).any():
            continue  # the larger cluster there keeps its number
        taken = np.vstack([taken, middle])
        text: Any = {
            "fontsize": 9,
            "fontweight": "bold",
            "color": INK,
            "path_effects": halo,
            "ha": "center",
            "va": "center",
        }
        axes.annotate(
            str(cluster), tuple(middle.tolist()), xytext=(6, 7), textcoords="offset points", **text
        )
