"""Medoids of many clients: from good cells to the best clients, without a distance matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from fedskew.clustering.space import chunks, nearest_point
from fedskew.clustering.summary import Summary
from fedskew.types import Floats, Ints

_ROUNDS = 50
_BATCH = 64  # candidates whose exact total distance is computed at once


@dataclass(frozen=True)
class Medoids:
    """One fit: the nearest medoid of everybody (``labels[i]`` indexes ``rows``)."""

    rows: Ints  # (c,)
    labels: Ints  # (n,)


def spread_medoids(points: Floats, cells: Summary, chosen: Ints) -> Medoids:
    """In each chosen cell the client nearest to its mean; everybody joins the nearest of these."""
    rows = np.array([_central(points, np.flatnonzero(cells.own == cell)) for cell in chosen])
    return Medoids(rows, nearest_point(points, points[rows]))


def settle_medoids(points: Floats, cells: Summary, chosen: Ints) -> Medoids:
    """Everybody to the nearest medoid, each medoid to the best member, until nothing changes."""
    found = spread_medoids(points, cells, chosen)
    for _ in range(_ROUNDS):
        moved = found.rows.copy()
        for cluster in np.unique(found.labels).tolist():
            members = np.flatnonzero(found.labels == cluster)
            moved[cluster] = best_member(points, members, cells.own, int(found.rows[cluster]))
        if np.array_equal(moved, found.rows):
            break
        found = Medoids(moved, nearest_point(points, points[moved]))
    return found


def best_member(points: Floats, members: Ints, own: Ints, medoid: int) -> int:
    """The member with the smallest total distance to all members; the medoid unless another one is
    strictly better.

    The distance to a cell's mean is at most the mean distance to its clients, so cells give a lower
    bound of every total; exact totals are computed in the order of the bounds, and end where a
    bound exceeds the best total.
    """
    inside = points[members]
    low = _lower_bounds(inside, own[members])
    best, total = medoid, _total(inside, points[[medoid]])[0] - 1e-9
    order = np.argsort(low, kind="stable")
    for start in range(0, len(order), _BATCH):
        batch = order[start : start + _BATCH]
        if low[batch[0]] >= total:
            break
        totals = _total(inside, inside[batch])
        if totals.min() < total:
            best, total = int(members[batch[totals.argmin()]]), totals.min()
    return best


def _lower_bounds(inside: Floats, own: Ints) -> Floats:
    _, cell, weights = np.unique(own, return_inverse=True, return_counts=True)
    means = np.column_stack([np.bincount(cell, column) for column in inside.T]) / weights[:, None]
    low = np.empty(len(inside))
    for rows in chunks(len(inside), len(means)):
        low[rows] = scipy.spatial.distance.cdist(inside[rows], means) @ weights
    return low


def _total(inside: Floats, candidates: Floats) -> Floats:
    return np.asarray(scipy.spatial.distance.cdist(candidates, inside).sum(axis=1))


def _central(points: Floats, members: Ints) -> int:
    gaps = points[members] - points[members].mean(axis=0)
    return int(members[(gaps * gaps).sum(axis=1).argmin()])
