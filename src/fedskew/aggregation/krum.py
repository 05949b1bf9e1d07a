"""The next model is the one that lies closest to its neighbours, or the mean of several such.

Blanchard, El Mhamdi, Guerraoui, Stainer: "Machine Learning with Adversaries: Byzantine Tolerant
Gradient Descent", NeurIPS 2017, section 4 (Krum) and 5 (Multi-Krum). The score of an end is the sum
of its squared distances to its n - f - 2 nearest others; the lowest score wins, ties to the first.

Differs from the paper: f is ``hostile`` n, rounded up, whatever n a round happens to have. The
paper wants n >= 2 f + 3; where that does not hold, f is what it allows, and every end has at least
one neighbour. Models in the place of gradients. Multi-Krum's mean is without weights.

Under label skew the end that lies closest to its neighbours is the one with the commonest labels
(evidence/hostile): one client's model becomes everybody's.
"""

from __future__ import annotations

import math

import numpy as np

from fedskew.aggregation.moves import moves, products, stepped
from fedskew.errors import RecipeError
from fedskew.types import Ends, Floats, Ints, Params, declares


@declares(compares=True)
def krum(model: Params, ends: Ends, *, hostile: float = 0.2) -> Params:
    """The end with the lowest score; ``hostile``: the share of ends that may be."""
    change = moves(model, ends)
    return stepped(model, ends, change[closest(change, hostile)[0]])


@declares(compares=True)
def multi_krum(model: Params, ends: Ends, *, hostile: float = 0.2, keep: int = 0) -> Params:
    """The mean of the ``keep`` ends with the lowest scores; 0: of all but the hostile share."""
    change = moves(model, ends)
    if not keep >= 0:
        raise RecipeError("aggregation.keep", f"{keep} is negative", "Give 0 or more")
    n = len(change)
    best = closest(change, hostile)[: keep or n - tolerated(n, hostile)]
    return stepped(model, ends, change[np.sort(best)].mean(axis=0))


def closest(rows: Params, hostile: float) -> Ints:
    """The rows by Krum's score, the best first."""
    n = len(rows)
    others = max(1, n - tolerated(n, hostile) - 2)
    apart = np.sort(squared_distances(rows), axis=1)[:, 1 : others + 1]
    return np.argsort(apart.sum(axis=1), kind="stable")


def tolerated(n: int, hostile: float) -> int:
    """f: how many of n ends may be hostile, as far as the paper allows it.

    >>> [tolerated(n, 0.2) for n in (1, 3, 5, 10)]
    [0, 0, 1, 2]
    """
    if not 0 <= hostile < 0.5:
        raise RecipeError("aggregation.hostile", f"{hostile} is not a share", "Give 0 to below 0.5")
    return max(0, min(math.ceil(hostile * n - 1e-9), (n - 3) // 2))


def squared_distances(rows: Params) -> Floats:
    """(n, n) between all pairs of rows."""
    product = products(rows)
    squares = np.diag(product)
    apart = np.maximum(squares[:, None] + squares[None, :] - 2 * product, 0.0)
    np.fill_diagonal(apart, 0.0)
    return np.asarray(apart, np.float64)
