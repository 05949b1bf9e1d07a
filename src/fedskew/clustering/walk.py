"""The walk of OPTICS: always on to the client easiest to reach from those visited.

Ankerst et al. 1999. Equal to scikit-learn's ``compute_optics_graph``; neighbours need no search at
every step. :class:`Rows` gives distances row by row, so any number of clients can be walked through
with the memory of one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from fedskew.types import Floats, Ints

# scikit-learn rounds reachabilities so that equal distances tie
_DECIMALS = np.finfo(np.float64).precision
_UNREACHED = np.finfo(np.float64).max  # below inf, which marks clients already in the ordering

_SHRINK = 8  # once this fraction of the listed clients has been visited, the list is made again


@dataclass(frozen=True)
class Ordering:
    """The walk: who comes when, and how hard each client was to reach."""

    order: Ints  # (n,)
    reachability: Floats  # (n,) by client, inf = where a walk starts
    predecessor: Ints  # (n,) -1 = none
    core_distances: Floats  # (n,) inf = never a core client


@dataclass(frozen=True)
class Rows:
    """Distances between points, one row at a time."""

    points: Floats  # (n, F)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, client: int) -> Floats:
        return self.to(self.points[client], self.points)

    @staticmethod
    def to(point: Floats, others: Floats) -> Floats:
        """Distances from one point to others, rounded."""
        row = scipy.spatial.distance.cdist(point[None], others)[0]
        return np.asarray(np.around(row, _DECIMALS, out=row))


Distances = Floats | Rows


def rounded(distances: Floats) -> Floats:
    """Distances without the last digit, so that equal ones tie."""
    return np.asarray(np.around(distances, _DECIMALS))


def core_distances(distances: Distances, min_samples: Sequence[int]) -> list[Floats]:
    """For each value the distance (n,) to that many-th nearest client, counting oneself.

    >>> core_distances(np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]]), [2, 3])
    [array([1., 1., 2.]), array([3., 2., 3.])]
    """
    if not min_samples:
        return []
    most = max(min_samples)
    if isinstance(distances, Rows):
        tree = scipy.spatial.KDTree(distances.points)
        nearest = rounded(np.asarray(tree.query(distances.points, most)[0])).reshape(
            len(distances), -1
        )
    else:
        nearest = np.sort(np.partition(distances, most - 1, axis=1)[:, :most], axis=1)
    return [nearest[:, least - 1].copy() for least in min_samples]


def order_clients(
    distances: Distances, core: Floats, max_eps: float, wider: Ordering | None = None
) -> Ordering:
    """The OPTICS ordering: always on to the client easiest to reach, the smallest id among equals.

    ``wider`` may be the walk with a larger ``max_eps``: up to the first client that was reached
    from farther than ``max_eps`` both walks are the same, and it is not walked again.
    """
    size = len(distances)
    core = np.where(core > max_eps, np.inf, core)
    reachability, predecessor = np.full(size, np.inf), np.full(size, -1, np.int64)
    order = np.empty(size, np.int64)
    shared = np.empty(0, np.int64) if wider is None else _shared(wider, max_eps)
    order[: len(shared)] = shared
    if wider is not None:
        reachability[shared] = wider.reachability[shared]
        predecessor[shared] = wider.predecessor[shared]
    walk = Ordering(order, reachability, predecessor, core)
    if isinstance(distances, Rows):
        _go_on_by_rows(distances.points, walk, max_eps, len(shared))
    else:
        _go_on(distances, walk, max_eps, len(shared))
    return walk


def _go_on(distances: Floats, walk: Ordering, max_eps: float, visited: int) -> None:
    """Walk on from the first ``visited`` clients of the order, whom nobody is near any more."""
    key = np.full(len(distances), _UNREACHED)  # of clients not yet in the order; inf once they are
    bound = key.copy()  # the same, -inf once they are: nothing improves on it
    key[walk.order[:visited]], bound[walk.order[:visited]] = np.inf, -np.inf
    for position in range(visited, len(distances)):
        client = walk.order[position] = key.argmin()
        key[client], bound[client] = np.inf, -np.inf
        if walk.core_distances[client] < np.inf:
            apart = distances[client]
            reach = np.maximum(apart, walk.core_distances[client])
            found = _nearer(reach, bound, apart, max_eps)
            key[found] = bound[found] = walk.reachability[found] = reach[found]
            walk.predecessor[found] = client


def _go_on_by_rows(points: Floats, walk: Ordering, max_eps: float, visited: int) -> None:
    """The same walk; distances only to clients that are left, half of the work."""
    left = np.setdiff1d(np.arange(len(points)), walk.order[:visited])
    key, there = np.full(len(left), _UNREACHED), points[left]
    gone = 0
    for position in range(visited, len(points)):
        at = int(key.argmin())
        client = walk.order[position] = left[at]
        key[at] = np.inf
        gone += 1
        if walk.core_distances[client] < np.inf:
            apart = Rows.to(points[client], there)
            reach = np.maximum(apart, walk.core_distances[client])
            found = _nearer(reach, key, apart, max_eps)
            found = found[key[found] < np.inf]
            key[found] = walk.reachability[left[found]] = reach[found]
            walk.predecessor[left[found]] = client
        if gone > len(left) // _SHRINK:
            kept = key < np.inf
            left, key, there, gone = left[kept], key[kept], there[kept], 0


def _nearer(reach: Floats, bound: Floats, apart: Floats, max_eps: float) -> Ints:
    """Positions easier to reach than before, and within the radius."""
    if max_eps == np.inf:
        return np.flatnonzero(reach < bound)
    return np.flatnonzero((reach < bound) & (apart <= max_eps))


def _shared(wider: Ordering, max_eps: float) -> Ints:
    """The clients a walk with a smaller radius visits first, in the same order.

    It ends where nobody is left within the radius but the wider walk goes on: before the first
    client reached from farther. Everybody still outside is then farther from all visited.
    """
    steps = wider.reachability[wider.order]
    far = (steps > max_eps) & np.isfinite(steps)
    return wider.order[: int(far.argmax())] if far.any() else wider.order
