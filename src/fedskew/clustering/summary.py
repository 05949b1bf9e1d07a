"""Many clients as a few thousand equal cells of near-equal clients, by a rule without chance.

Clients are halved again and again along the column in which they differ most, until a cell holds
K / most of them; each cell is then one point, the mean of its clients. There is no draw and the
order of the clients plays no part, so the same clients always give the same cells: what is found on
them cannot change with the seed.

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
    """At most ``most`` cells of equally many clients.

    >>> found = summarise(np.array([[0.0], [9.0], [1.0], [8.0]]), 2)
    >>> found.own, found.means.ravel(), found.picked.ravel()
    (array([0, 1, 0, 1]), array([0.5, 8.5]), array([1., 8.]))
    """
    cells = _cells(points, -(-len(points) // most))
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
    """The clients of each cell, ``size`` of them in all but the last."""
    cells, waiting = [], [_in_order(points)]
    while waiting:
        rows = waiting.pop()
        if len(rows) <= size:
            cells.append(rows)
            continue
        half = size * (-(-len(rows) // size) // 2)
        inside = points[rows]
        parted = np.argpartition(inside[:, inside.var(axis=0).argmax()], half)
        waiting += [rows[parted[half:]], rows[parted[:half]]]
    return cells


def _in_order(points: Floats) -> Ints:
    """The clients in an order that depends on their points alone."""
    # square roots of primes: two different rows of proportions hardly ever get the same number
    primes = [n for n in range(2, 20 * points.shape[1] + 20) if all(n % d for d in range(2, n))]
    return np.argsort(points @ np.sqrt(primes[: points.shape[1]]), kind="stable")
