"""Population stability index: how far each label mix lies from the federation's, by class.

Clust-PSI-PFL (paper 004): PSI_ic = (p_ic - g_c) ln(p_ic / g_c), PSI_i = sum_c PSI_ic, WPSI = sum_i
(n_i / N) PSI_i, with g the label mix of all examples together. The clustering features of a client
are [PSI_i, PSI_i1 .. PSI_iC], each column standardised (docs/methods.md 2.11, 3.5).

Differs from the paper:

- The paper is silent on absent classes. As in the authors' public code, eps is added on both sides
  inside the logarithm. The value is mostly about absent classes and eps: one absent class with g =
  0.1 costs 0.46 / 0.69 / 1.15 / 2.07 at eps = 1e-3 / 1e-4 / 1e-6 / 1e-10. Compare WPSI only at
  equal eps, number of classes and g.
- ``signed`` is ours: PSI_ic looks alike for an absent and for a strongly present class (at g = 0.1:
  p = 0 gives 1.151, p = 0.69 gives 1.140); the sign of p - g keeps them apart. Off by default.
- A column that varies only by rounding counts as constant: standardising it would turn noise of
  1e-15 into distances of 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedskew.distance.geometry import describe, known_rows
from fedskew.distance.vector import euclidean_pairwise
from fedskew.errors import RecipeError
from fedskew.types import Floats, Geometry, Signal


def overall_mix(rows: Floats, num_examples: Floats) -> Floats:
    """(C,) g, the label mix of all examples together; clients count alike if nobody has a size."""
    total = num_examples.sum()
    mix: Floats = num_examples @ rows / total if total > 0 else rows.mean(axis=0)
    return mix


def psi_terms(rows: Floats, num_examples: Floats, *, eps: float = 1e-6) -> Floats:
    """(K, C) PSI_ic, never negative. A class nobody has costs nothing.

    >>> rows = np.array([[.7, .2, .1, 0], [.1, .2, .3, .4]])
    >>> psi_terms(rows, np.array([10., 30.])).sum(axis=1).round(6).tolist()
    [4.384233, 0.175327]
    """
    return _terms(rows, overall_mix(rows, num_examples), eps)


def _terms(rows: Floats, mix: Floats, eps: float) -> Floats:
    if not eps > 0:
        raise RecipeError(
            "distance.psi", f"eps = {eps} makes absent classes infinite", "Give a number above 0"
        )
    return np.maximum((rows - mix) * np.log((rows + eps) / (mix + eps)), 0)


def _columns(rows: Floats, mix: Floats, signed: bool, eps: float) -> Floats:
    terms = _terms(rows, mix, eps)
    return np.column_stack([terms.sum(axis=1), np.sign(rows - mix) * terms if signed else terms])


@dataclass(frozen=True)
class PsiScale:
    """What turns label proportions into features: the federation's mix, means and spreads."""

    mix: Floats  # (C,) g
    mean: Floats  # (1 + C,)
    spread: Floats  # (1 + C,) infinite for a constant column: its feature is 0
    signed: bool
    eps: float

    def place(self, rows: Floats) -> Floats:
        """(n, 1 + C) features of any clients, new ones too, by the scale of the old ones."""
        features: Floats = (
            _columns(rows, self.mix, self.signed, self.eps) - self.mean
        ) / self.spread
        return features


def psi_scale(
    rows: Floats, num_examples: Floats, *, signed: bool = False, eps: float = 1e-6
) -> PsiScale:
    """The scale of these clients (Clust-PSI-PFL keeps it to place clients that come later).

    >>> rows = np.array([[.5, .5], [.9, .1], [.1, .9]])
    >>> scale = psi_scale(rows, np.ones(3))
    >>> bool(np.allclose(scale.place(rows), psi_features(rows, np.ones(3))))
    True
    """
    mix = overall_mix(rows, num_examples)
    columns = _columns(rows, mix, signed, eps)
    spread = columns.std(axis=0)
    # 1e-12: rounding of a logarithm, relative to the column. 1e-20: p - g rounds to 1e-17, so PSI
    # of equal rows to 1e-33, while one example in a million makes 1e-12.
    varies = spread > 1e-12 * np.abs(columns).max(axis=0) + 1e-20
    return PsiScale(mix, columns.mean(axis=0), np.where(varies, spread, np.inf), signed, eps)


def psi_features(
    rows: Floats, num_examples: Floats, *, signed: bool = False, eps: float = 1e-6
) -> Floats:
    """(K, 1 + C) columns of mean 0 and population standard deviation 1.

    First the client's whole PSI, then one column per class.
    """
    return psi_scale(rows, num_examples, signed=signed, eps=eps).place(rows)


def psi(signal: Signal, *, signed: bool = False, eps: float = 1e-6) -> Geometry:
    """Euclidean distance between standardised PSI features. Scales to any number of clients."""
    features = psi_features(
        known_rows(signal), signal.num_examples[signal.known], signed=signed, eps=eps
    )
    return describe(signal, "psi", lambda _: euclidean_pairwise(features), lambda _: features)
