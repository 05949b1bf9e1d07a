"""Distances between distributions: how much of one label mix must change to get another's.

docs/methods.md 2.1-2.4; Hellinger is FedLECC's (paper 000), all others are compared by the
similarity study (paper 002, eqs 9-11).

Differs from the paper:

- Jensen-Shannon has two names, because eq 10 is the divergence and scipy's ``jensenshannon`` is its
  square root.
- KL is infinite whenever a client lacks a class that the other has, which is normal under label
  skew. The paper does not say what it did; here ``zeros`` says it. Clustering needs symmetry, so
  the stage gives J = (KL(p, q) + KL(q, p)) / 2.
- "EMD" has three readings, each under its own name: :func:`w1_index`, :func:`w1_values`,
  :func:`tv`.

Every ``*_pairwise`` function takes plain rows (K, C) and returns (K, K) in float64. Identical rows
are at exactly 0, which OPTICS needs: it reads ratios of distances, and a rounding error of 1e-8 in
place of 0 looks like structure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import numpy as np
import scipy

from fedskew.distance.geometry import all_pairs, describe
from fedskew.errors import RecipeError
from fedskew.types import Floats, Geometry, Signal

Zeros: TypeAlias = Literal["clip", "add", "none"]
Unit: TypeAlias = Literal["nats", "bits"]
# K x K x C is worked off in blocks of this many float64: 32 MB, about the best speed too
_BLOCK_NUMBERS = 4_000_000


# ---------------------------------------------------------------- Hellinger


def hellinger_points(rows: Floats) -> Floats:
    """Square roots over sqrt(2): their Euclidean distance is the Hellinger distance."""
    points: Floats = np.sqrt(rows) / np.sqrt(2.0)
    return points


def hellinger_pairwise(rows: Floats) -> Floats:
    """sqrt(1 - sum_c sqrt(p_c q_c)), between 0 (same mix) and 1 (no class in common).

    >>> round(float(hellinger_pairwise(np.array([[.7, .2, .1, 0], [.1, .2, .3, .4]]))[0, 1]), 6)
    0.601847
    """
    # The Gram form 1 - sqrt(P) sqrt(P)' is quicker but leaves 1e-8 between identical rows.
    return np.minimum(all_pairs(hellinger_points(rows)), 1.0)


def hellinger(signal: Signal) -> Geometry:
    """Hellinger distance: the overlap of two label mixes, 0 to 1; scales to any K."""
    return describe(signal, "hellinger", hellinger_pairwise, hellinger_points)


# ---------------------------------------------------------------- Jensen-Shannon


def js_div_pairwise(rows: Floats, *, unit: Unit = "nats") -> Floats:
    """Half the divergence of each from their middle: KL(p, r)/2 + KL(q, r)/2 with r = (p + q)/2.

    >>> round(float(js_div_pairwise(np.array([[.7, .2, .1, 0], [.1, .2, .3, .4]]))[0, 1]), 6)
    0.291343
    """
    square = np.zeros((len(rows), len(rows)))
    for block in _blocks(rows):
        one = rows[block, None, :]
        other = rows[None, block.start :, :]
        middle = (one + other) / 2
        part = (scipy.special.rel_entr(one, middle) + scipy.special.rel_entr(other, middle)).sum(
            axis=2
        ) / 2
        square[block, block.start :] = part
        square[block.start :, block] = part.T
    return np.maximum(square, 0) / (np.log(2) if unit == "bits" else 1.0)


def js_dist_pairwise(rows: Floats, *, unit: Unit = "nats") -> Floats:
    """Square root of :func:`js_div_pairwise`: a metric, and what scipy calls ``jensenshannon``."""
    distances: Floats = np.sqrt(js_div_pairwise(rows, unit=unit))
    return distances


def js_div(signal: Signal, *, unit: Unit = "nats") -> Geometry:
    """Jensen-Shannon divergence (paper 002 eq 10, natural logarithm), no metric."""
    return describe(signal, "js_div", lambda rows: js_div_pairwise(rows, unit=unit))


def js_dist(signal: Signal, *, unit: Unit = "nats") -> Geometry:
    """Jensen-Shannon distance, the root of the divergence; it does not scale.

    Its exact points are infinite-dimensional.
    """
    return describe(signal, "js_dist", lambda rows: js_dist_pairwise(rows, unit=unit))


# ---------------------------------------------------------------- Kullback-Leibler


def fill_zeros(rows: Floats, *, zeros: Zeros = "clip", eps: float = 1e-6) -> Floats:
    """Lift absent classes off zero.

    ``clip`` raises to eps, ``add`` adds eps, both renormalise; ``none`` changes nothing.
    """
    if zeros == "none":
        return rows
    if not eps > 0:
        raise RecipeError(
            "distance.kl",
            f"eps = {eps} leaves the zeros",
            'Give a number above 0, or zeros = "none"',
        )
    filled = np.maximum(rows, eps) if zeros == "clip" else rows + eps
    shares: Floats = filled / filled.sum(axis=1, keepdims=True)
    return shares


def kl_directed_pairwise(rows: Floats, *, zeros: Zeros = "clip", eps: float = 1e-6) -> Floats:
    """Entry (i, j) is KL(p_i, p_j) = sum_c p_ic ln(p_ic / p_jc), natural logarithm. Not symmetric.

    >>> kl_directed_pairwise(np.array([[.7, .2, .1, 0], [.1, .2, .3, .4]])).round(5).tolist()
    [[0.0, 1.25226], [5.29468, 0.0]]
    """
    filled = fill_zeros(rows, zeros=zeros, eps=eps)
    square = np.empty((len(rows), len(rows)))
    for block in _blocks(rows):
        square[block] = scipy.special.rel_entr(filled[block, None, :], filled[None, :, :]).sum(
            axis=2
        )
    return np.maximum(square, 0)


def kl_pairwise(rows: Floats, *, zeros: Zeros = "clip", eps: float = 1e-6) -> Floats:
    """The mean of both directions, J = (KL(p, q) + KL(q, p)) / 2."""
    directed = kl_directed_pairwise(rows, zeros=zeros, eps=eps)
    symmetric: Floats = (directed + directed.T) / 2
    return symmetric


def kl(signal: Signal, *, zeros: Zeros = "clip", eps: float = 1e-6) -> Geometry:
    """Kullback-Leibler divergence, mean of both directions.

    ``zeros = "none"`` gives infinities where supports differ.
    """
    return describe(signal, "kl", lambda rows: kl_pairwise(rows, zeros=zeros, eps=eps))


# --------------------------------------------- the three readings of "earth mover's distance"


def w1_index_pairwise(rows: Floats) -> Floats:
    """Wasserstein-1 with class c at position c on a line: the sum of |F_p(c) - F_q(c)|.

    >>> round(float(w1_index_pairwise(np.array([[.7, .2, .1, 0], [.1, .2, .3, .4]]))[0, 1]), 6)
    1.6
    """
    cumulative = np.cumsum(rows, axis=1)
    cumulative[:, -1] = 1.0  # it is, up to rounding; identical tails must not differ
    return all_pairs(cumulative, "cityblock")


def w1_values_pairwise(rows: Floats) -> Floats:
    """The proportions taken as samples: mean |sorted p - sorted q|.

    As ``scipy.stats.wasserstein_distance(p, q)`` does.

    >>> round(float(w1_values_pairwise(np.array([[.7, .2, .1, 0], [.1, .2, .3, .4]]))[0, 1]), 6)
    0.15
    """
    square: Floats = all_pairs(np.sort(rows, axis=1), "cityblock") / rows.shape[1]
    return square


def tv_pairwise(rows: Floats) -> Floats:
    """Total variation, half the sum of |p_c - q_c|.

    It is Wasserstein when every two classes are equally far apart.
    """
    square: Floats = all_pairs(rows, "cityblock") / 2
    return square


def w1_index(signal: Signal) -> Geometry:
    """Earth mover's distance with the classes on a line 0..C-1; it invents an order.

    "3" is nearer to "4" than to "9".
    """
    return describe(signal, "w1_index", w1_index_pairwise)


def w1_values(signal: Signal) -> Geometry:
    """What FedArtML calls EMD; it ignores which class is which.

    Two clients with one different class each are at distance 0.
    """
    return describe(signal, "w1_values", w1_values_pairwise)


def tv(signal: Signal) -> Geometry:
    """Total variation: the share of examples that would have to change class.

    The honest "EMD" for unordered classes.
    """
    return describe(signal, "tv", tv_pairwise)


def _blocks(rows: Floats) -> Iterator[slice]:
    """Consecutive slices of clients: slice x K x C stays within ``_BLOCK_NUMBERS``."""
    step = max(1, _BLOCK_NUMBERS // max(1, rows.size))
    for start in range(0, len(rows), step):
        yield slice(start, min(start + step, len(rows)))
