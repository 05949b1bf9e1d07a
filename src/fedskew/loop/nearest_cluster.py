"""Clients that come after the clusters were made: which group and model are theirs.

Paper 004 assigns a new client by the stored reference and centroids (docs/methods.md 7.1): its PSI
features use the old federation's label mix and column scale, and the nearest centre wins. Nothing
is clustered again and nobody moves. For other distances a newcomer goes to the nearest centre, or
to the cluster with the smallest mean distance where a distance has no points.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedskew.clustering import assign, assign_by_distances
from fedskew.distance.psi import psi, psi_scale
from fedskew.errors import RunError, SignalError
from fedskew.loop.method import Stage
from fedskew.signal.counts import check_counts, proportions
from fedskew.types import Clustering, Ints, Signal


def assign_newcomers(
    counts: ArrayLike, signal: Signal, clustering: Clustering, distance: Stage
) -> Ints:
    """(n,) the cluster of new clients with these label counts (n, C); -1 without examples.

    ``signal``, ``clustering`` (both in ``State``) and ``distance`` are those the clusters were made
    with.

    >>> from fedskew.clustering import CLUSTERINGS
    >>> from fedskew.signal.histogram import histogram
    >>> old = histogram([[9, 1], [8, 2], [9, 1], [1, 9], [2, 8], [1, 9]])
    >>> how = Stage("hellinger", __import__("fedskew.distance").distance.DISTANCES["hellinger"])
    >>> found = CLUSTERINGS["kmeans"](how.function(old), np.random.default_rng(0))
    >>> assign_newcomers([[80, 20], [0, 5], [0, 0]], old, found, how)
    array([ 0,  1, -1])
    """
    table = check_counts(counts, "new clients")
    if table.shape[1] != signal.num_classes:
        what = f"{table.shape[1]} classes, the federation knows {signal.num_classes}"
        raise SignalError(
            "new clients", what, "Give one count for each of the federation's classes"
        )
    if not clustering.k:
        raise RunError(
            "new clients", "there are no clusters to assign them to", "Cluster known clients first"
        )
    sizes, rows = table.sum(axis=1), proportions(table)
    labels = np.full(len(table), -1, np.int64)
    known_clients = np.flatnonzero(sizes > 0)
    labels[known_clients] = nearest_clusters(
        Signal(rows[known_clients], sizes[known_clients], "disclosed"), signal, clustering, distance
    )
    return labels


def nearest_clusters(
    newcomers: Signal, signal: Signal, clustering: Clustering, distance: Stage
) -> Ints:
    """(n,) the cluster of clients with these label proportions, all of them known."""
    if not len(newcomers.rows):
        return np.empty(0, np.int64)
    if distance.function is psi:
        return _by_psi(newcomers, signal, clustering, distance)
    return _joined(newcomers, signal, clustering, distance)


def _by_psi(newcomers: Signal, signal: Signal, clustering: Clustering, distance: Stage) -> Ints:
    """By the stored scale: newcomers do not change the label mix that features refer to."""
    known = signal.known
    scale = psi_scale(signal.rows[known], signal.num_examples[known], **distance.options)
    points = scale.place(newcomers.rows)
    if "centers" not in clustering.details:
        old = scale.place(signal.rows)
        return assign_by_distances(clustering, np.linalg.norm(points[:, None] - old[None], axis=2))
    return assign(clustering, points)


def _joined(newcomers: Signal, signal: Signal, clustering: Clustering, distance: Stage) -> Ints:
    """Distances of two clients do not depend on others, so old and new are measured together."""
    size = len(signal.rows)
    both = Signal(
        np.concatenate([signal.rows, newcomers.rows]),
        np.concatenate([signal.num_examples, newcomers.num_examples]),
        signal.source,
        known=np.concatenate([signal.known, newcomers.known]),
    )
    geometry = distance.function(both, **distance.options)
    if geometry.points is not None and "centers" in clustering.details:
        return assign(clustering, geometry.points[size:])
    return assign_by_distances(clustering, geometry.pairwise[size:, :size])
