"""Work with finished labels: number them stably, place a new client, compare two groupings.

Cluster numbers mean nothing by themselves, so they are always 0..k-1 in the order of each cluster's
smallest member: the same groups get the same numbers whatever algorithm or seed found them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from fedskew.clustering.space import nearest_point
from fedskew.errors import RecipeError
from fedskew.types import Clustering, Floats, Ints


def relabel(labels: Ints) -> tuple[Ints, Ints]:
    """(labels renumbered 0..k-1 by smallest member, the old number of each new cluster); -1 stays.

    >>> relabel(np.array([7, -1, 3, 7]))
    (array([ 0, -1,  1,  0]), array([7, 3]))
    """
    inside = np.flatnonzero(labels >= 0)
    old, first, own = np.unique(labels[inside], return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    renumbered = np.full(len(labels), -1, np.int64)
    renumbered[inside] = np.argsort(order)[own]
    return renumbered, old[order]


def assign(clustering: Clustering, points: Floats) -> Ints:
    """The cluster of new clients, without clustering again: the nearest centre in the geometry's
    points (n, F).

    The centre is the mean of the members, for k-medoids the medoid.

    >>> known = Clustering(np.array([0, 1]), details={"centers": np.array([[0.0], [1.0]])})
    >>> assign(known, np.array([[0.2], [0.9]]))
    array([0, 1])
    """
    centers = clustering.details.get("centers")
    if centers is None or not len(centers):
        raise RecipeError(
            "clustering.assign", "this clustering has no centres", "Use assign_by_distances"
        )
    return nearest_point(np.atleast_2d(points), np.asarray(centers))


def assign_by_distances(clustering: Clustering, distances: Floats) -> Ints:
    """The cluster of new clients from their distances (n, K) to the old ones: the smallest mean
    distance to its members.

    >>> assign_by_distances(Clustering(np.array([0, 1, 1, -1])), np.array([[0.4, 0.1, 0.3, 0.0]]))
    array([1])
    """
    if not clustering.k:
        raise RecipeError(
            "clustering.assign_by_distances",
            "this clustering has no clusters",
            "Cluster known clients first",
        )
    members = np.flatnonzero(clustering.labels >= 0)
    own = clustering.labels[members]
    pick = scipy.sparse.csr_array(
        (1.0 / np.bincount(own)[own], (own, members)), shape=(clustering.k, len(clustering.labels))
    )
    means: Floats = np.asarray(pick @ np.atleast_2d(distances).T)
    return np.asarray(means.argmin(axis=0))


@dataclass(frozen=True)
class Agreement:
    """How alike two groupings are: 1 = the same, about 0 = no more than by chance."""

    ari: float  # adjusted Rand index (Hubert & Arabie 1985)
    ami: float  # adjusted mutual information (Vinh et al. 2010)
    num_clients: int  # compared: those with a group on both sides


def agreement(labels: Ints, groups: Ints) -> Agreement:
    """Compare labels with known groups over the clients that have both (no -1).

    >>> agreement(np.array([0, 0, 1, 1, -1]), np.array([5, 5, 2, 2, 2]))
    Agreement(ari=1.0, ami=1.0, num_clients=4)
    """
    # takes a second: not for every command
    from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

    both = (np.asarray(labels) >= 0) & (np.asarray(groups) >= 0)
    mine, known = np.asarray(labels)[both], np.asarray(groups)[both]
    if not len(mine):
        return Agreement(float("nan"), float("nan"), 0)
    return Agreement(
        float(adjusted_rand_score(known, mine)),
        float(adjusted_mutual_info_score(known, mine)),
        int(np.count_nonzero(both)),
    )


def stability(
    reference: Clustering, repeat: Callable[[int], Clustering], *, draws: int = 10
) -> Floats:
    """(draws,) ARI between a clustering and what ``repeat(draw)`` finds, for example from signals
    with fresh privacy noise.

    >>> kept = Clustering(np.array([0, 0, 1, 1]))
    >>> stability(kept, lambda draw: kept, draws=2)
    array([1., 1.])
    """
    return np.array([agreement(repeat(draw).labels, reference.labels).ari for draw in range(draws)])
