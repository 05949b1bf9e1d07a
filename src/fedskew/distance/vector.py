"""Distances that take a client's label proportions as a plain vector.

docs/methods.md 2.5-2.10; all of them are compared by the similarity study (paper 002, eqs 3-8).

Differs from the paper:

- Eq 3 is cosine SIMILARITY; clustering needs a distance, so this is 1 minus it.
- Eq 7 sums the largest difference once per class, a factor C on every Chebyshev distance; the plain
  maximum gives the same clusters.
- Eq 8 read literally is not 0 for two equal clients. ``mmd_linear`` takes independent copies in the
  outer terms, the usual squared MMD of one-hot labels under a linear kernel: |p - q|^2. It is C
  times ``mse``: the two give the same clusters.
"""

from __future__ import annotations

import numpy as np

from fedskew.distance.geometry import all_pairs, describe
from fedskew.types import Floats, Geometry, Signal


def euclidean_pairwise(rows: Floats) -> Floats:
    """|p - q|, also of any other points."""
    return all_pairs(rows)


def manhattan_pairwise(rows: Floats) -> Floats:
    """Sum of |p_c - q_c|, twice the total variation."""
    return all_pairs(rows, "cityblock")


def chebyshev_pairwise(rows: Floats) -> Floats:
    """Largest |p_c - q_c|."""
    return all_pairs(rows, "chebyshev")


def mmd_linear_pairwise(rows: Floats) -> Floats:
    """|p - q|^2, the squared maximum mean discrepancy of one-hot labels under a linear kernel."""
    return all_pairs(rows, "sqeuclidean")


def mse_pairwise(rows: Floats) -> Floats:
    """|p - q|^2 / C."""
    square: Floats = mmd_linear_pairwise(rows) / rows.shape[1]
    return square


def cosine_points(rows: Floats) -> Floats:
    """Unit vectors over sqrt(2); half the squared distance of unit vectors is 1 - cos."""
    points: Floats = rows / (np.sqrt(2.0) * np.linalg.norm(rows, axis=1, keepdims=True))
    return points


def cosine_pairwise(rows: Floats) -> Floats:
    """1 - p.q / (|p| |q|), exactly 0 for identical rows and never negative.

    >>> round(float(cosine_pairwise(np.array([[.7, .2, .1, 0], [.1, .2, .3, .4]]))[0, 1]), 6)
    0.652167
    """
    return all_pairs(cosine_points(rows), "sqeuclidean")


def euclidean(signal: Signal) -> Geometry:
    """Euclidean distance between label proportions. Scales to any number of clients."""
    return describe(signal, "euclidean", euclidean_pairwise, lambda rows: rows)


def manhattan(signal: Signal) -> Geometry:
    """Sum of the absolute differences, twice ``tv``."""
    return describe(signal, "manhattan", manhattan_pairwise)


def chebyshev(signal: Signal) -> Geometry:
    """The largest difference in any one class."""
    return describe(signal, "chebyshev", chebyshev_pairwise)


def mse(signal: Signal) -> Geometry:
    """Mean squared difference over the classes. Scales (as its square root)."""
    return describe(
        signal, "mse", mse_pairwise, lambda rows: rows / np.sqrt(rows.shape[1]), squared=True
    )


def mmd_linear(signal: Signal) -> Geometry:
    """Squared MMD with a linear kernel, C times ``mse``; scales (as its square root)."""
    return describe(signal, "mmd_linear", mmd_linear_pairwise, lambda rows: rows, squared=True)


def cosine(signal: Signal) -> Geometry:
    """1 minus the cosine of the angle between label proportions. Scales (as its square root)."""
    return describe(signal, "cosine", cosine_pairwise, cosine_points, squared=True)
