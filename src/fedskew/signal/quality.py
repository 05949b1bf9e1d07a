"""How good an estimate of the label mixes is, against the truth.

docs/methods.md 8.4; kappa is eq 9 of BACSA (paper 001).

Differs from the paper:

- Eq 9, the mean of |p - estimate| / p in percent, divides by zero for every class a client lacks,
  that is almost always under skew. ``kappa_support`` averages only over clients that have the
  class; ``kappa_floor`` over all, with max(p, 1/n) below.
- What goes wrong on absent classes is counted apart: ``false_mass``, and precision and recall of
  "has this class".
- The paper adds kappa up over Monte-Carlo runs; report the mean instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedskew.errors import SignalError
from fedskew.types import Bools, Floats, frozen


@dataclass(frozen=True)
class EstimationQuality:
    """Figures over all compared clients. NaN: nothing to average over."""

    total_variation: float  # mean over clients
    kappa_support: Floats  # (C,) percent, over clients that have the class
    kappa_floor: Floats  # (C,) percent, over all clients
    false_mass: float  # mean share given to classes the client does not have
    presence_precision: float  # of the (client, class) pairs called present, at 0.5 / C or more
    presence_recall: float  # of the pairs that are present


def estimation_quality(
    truth: ArrayLike, estimate: ArrayLike, num_examples: ArrayLike
) -> EstimationQuality:
    """Compare estimated with true proportions, both (K, C) with rows that sum to 1.

    >>> truth = [[.5, .5, 0], [1, 0, 0]]
    >>> quality = estimation_quality(truth, [[.4, .5, .1], [1, 0, 0]], [10, 10])
    >>> round(quality.total_variation, 3), round(quality.false_mass, 3)
    (0.05, 0.05)
    >>> quality.kappa_support.round(1).tolist()
    [10.0, 0.0, nan]
    """
    p, q, sizes = (np.asarray(values, np.float64) for values in (truth, estimate, num_examples))
    if p.shape != q.shape or p.ndim != 2 or sizes.shape != (len(p),):
        raise SignalError(
            "quality", f"shapes {p.shape}, {q.shape}, {sizes.shape}", "Give (K, C), (K, C) and (K,)"
        )
    if not (sizes > 0).all():
        raise SignalError(
            "quality",
            f"client {int((sizes <= 0).argmax())} has no examples",
            "Leave it out of the comparison",
        )
    has = p > 0
    called = q >= 0.5 / p.shape[1]
    error = np.abs(p - q)
    return EstimationQuality(
        total_variation=float(error.sum(axis=1).mean() / 2),
        kappa_support=frozen(_column_mean(100 * error / np.where(has, p, 1.0), has)),
        kappa_floor=frozen((100 * error / np.maximum(p, 1 / sizes[:, None])).mean(axis=0)),
        false_mass=float(np.where(has, 0.0, q).sum(axis=1).mean()),
        presence_precision=_share(has, called),
        presence_recall=_share(called, has),
    )


def _column_mean(values: Floats, where: Bools) -> Floats:
    """Mean per column over the marked entries; NaN for a column without any."""
    marked = where.sum(axis=0)
    sums = np.where(where, values, 0.0).sum(axis=0)
    return np.where(marked > 0, sums / np.maximum(marked, 1), np.nan)


def _share(hits: Bools, among: Bools) -> float:
    return float(hits[among].mean()) if among.any() else float("nan")
