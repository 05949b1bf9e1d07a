"""Many clients as a few thousand equal cells of near-equal clients, by a rule without chance.

Clients are cut in two again and again along the column in which they differ most, until a cell
holds K / most of them; each cell is then one point, the mean of its clients. Where that column has
two clearly different sides the cut goes between them, so that a cell holds clients of one group;
else it halves. There is no draw and the order of the clients plays no part, so the same clients
always give the same cells: what is found on them cannot change with the seed.

A cell on the border of two groups may hold clients of both; so the tenth of the clients that is
farthest from the mean of its cell goes to the cell with the nearest mean. Cells hold about equally
many clients, so algorithms may count cells in the place of clients.

Means of cells are nearer to each other than clients are, and small groups of them would
look better than they are; so silhouettes are made of one real client per cell, picked by a fixed
draw: a sample of the federation in which every corner has its share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from fedskew.clustering.space import nearest_point
from fedskew.types import Floats, Ints

FARTHEST = 0.1  # of the clients look for a nearer cell
MANY = 8  # cells; fewer are halved, or clear cuts would leave many small cells
CLEAR = 0.8  # of the variance; the best cut of evenly spread values explains 3/4


@dataclass(frozen=True)
class Summary:
    """The cells of many clients."""

    means: Floats  # (n, F) the mean of each cell
    weights: Floats  # (n,) clients in it
    own: Ints  # (K,) the cell of each client
    rows: Ints  # one client of each cell as it was before clients changed cells
    picked: Floats  # their points

    def between_means(self) -> Floats:
        """(n, n) distances between the means of the cells: what algorithms walk on."""
        return np.asarray(scipy.spatial.distance.cdist(self.means, self.means))

    def between_clients(self) -> Floats:
        """(n, n) distances between the picked clients: what silhouettes are made of."""
        return np.asarray(scipy.spatial.distance.cdist(self.picked, self.picked))


def summarise(points: Floats, most: int) -> Summary:
    """At most ``most`` cells of about equally many clients.

    >>> found = summarise(np.array([[0.0], [9.0], [1.0], [8.0]]), 2)
    >>> found.own, found.means.ravel(), found.picked.ravel()
    (array([0, 1, 0, 1]), array([0.5, 8.5]), array([1., 8.]))
    """
    # a little larger where there are many: clear cuts leave small cells
    size = max(-(-len(points) // most), int(1.02 * len(points) / most))
    while len(cells := _cells(points, size)) > most:
        size = max(size + 1, int(1.05 * size * len(cells) / most))
    own = np.empty(len(points), np.int64)
    own[np.concatenate(cells)] = np.repeat(np.arange(len(cells)), [len(rows) for rows in cells])
    means = _means(points, own)
    gaps = ((points - means[own]) ** 2).sum(axis=1)
    far = np.flatnonzero(gaps > np.quantile(gaps, 1 - FARTHEST))
    own[far] = nearest_point(points[far], means)
    own = np.unique(own, return_inverse=True)[1].reshape(-1)
    rows = _pick(cells)
    weights = np.bincount(own).astype(np.float64)
    return Summary(_means(points, own), weights, own, rows, points[rows])


def _means(points: Floats, own: Ints) -> Floats:
    sums = np.column_stack([np.bincount(own, column) for column in points.T])
    return np.asarray(sums / np.bincount(own)[:, None])


def _pick(cells: list[Ints]) -> Ints:
    """One client of each cell, by a draw that is always the same."""
    heights = np.random.default_rng(0).random(len(cells))
    chosen = [rows[int(height * len(rows))] for rows, height in zip(cells, heights, strict=True)]
    return np.array(chosen, np.int64)


def _cells(points: Floats, size: int) -> list[Ints]:
    """The clients of each cell, ``size`` of them in all but the last on a side of a clear cut."""
    cells, waiting = [], [_in_order(points)]
    while waiting:
        rows = waiting.pop()
        if len(rows) <= size:
            cells.append(rows)
            continue
        inside = points[rows]
        column = inside[:, inside.var(axis=0).argmax()]
        bar = _clear_cut(np.sort(column), size) if len(rows) >= MANY * size else None
        if bar is not None:
            waiting += [rows[column >= bar], rows[column < bar]]
            continue
        half = size * (-(-len(rows) // size) // 2)
        parted = np.argpartition(column, half)
        waiting += [rows[parted[half:]], rows[parted[:half]]]
    return cells


def _clear_cut(ranked: Floats, least: int) -> float | None:
    """The least value above a gap that parts rising values into two clearly different sides, each
    of ``least`` or more: the cut that explains most of their variance, if that is ``CLEAR`` of it.

    >>> _clear_cut(np.array([0.0, 0.1, 0.1, 0.9, 1.0]), 1), _clear_cut(np.arange(9.0), 1)
    (0.9, None)
    """
    n = len(ranked)
    before = np.arange(1, n)
    centred = ranked - ranked.mean()
    explained = np.square(np.cumsum(centred)[:-1]) / (before * (n - before)) * n
    allowed = (before >= least) & (n - before >= least) & (ranked[1:] > ranked[:-1])
    best = int(np.where(allowed, explained, 0.0).argmax())
    clear = allowed[best] and explained[best] >= CLEAR * np.square(centred).sum()
    return float(ranked[best + 1]) if clear else None


def _in_order(points: Floats) -> Ints:
    """The clients in an order that depends on their points alone."""
    # square roots of primes: two different rows of proportions hardly ever get the same number
    primes = [n for n in range(2, 20 * points.shape[1] + 20) if all(n % d for d in range(2, n))]
    return np.argsort(points @ np.sqrt(primes[: points.shape[1]]), kind="stable")
