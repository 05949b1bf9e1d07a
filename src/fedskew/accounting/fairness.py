"""How evenly accuracy is spread over clients (paper 004; docs/methods.md 9.5, 9.7).

A_k is the accuracy of client k's model on its own test set. AD = mean_k |1 - A_k| and SDAD, the
population standard deviation of the same, count every client alike; the weighted accuracy sum_k n_k
A_k / sum_k n_k counts test examples. AD may be above or below 1 - weighted accuracy. Clients
without test examples are left out and counted.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedskew.accounting.participation import jain
from fedskew.errors import RunError
from fedskew.types import Floats

WORST_SHARE = 0.1


@dataclass(frozen=True)
class Fairness:
    """Figures over clients; nan when no client could be tested."""

    weighted: float  # accuracy by test examples: the "global accuracy" of paper 004
    ad: float  # mean distance from a perfect model
    sdad: float  # its standard deviation, ddof 0
    worst10: float  # mean accuracy of the tenth of the clients (rounded up) that fares worst
    jain: float  # Jain's index of the accuracies: 1 = all alike
    clients: int  # that were tested
    excluded: int  # without test examples

    def as_dict(self) -> dict[str, float | int]:
        """The figures by name."""
        return asdict(self)


def fairness(accuracy: ArrayLike, test_examples: ArrayLike) -> Fairness:
    """The figures of accuracies (K,) measured on so many test examples (K,) each.

    >>> found = fairness([1.0, 0.5, float("nan")], [30, 10, 0])
    >>> found.weighted, found.ad, found.sdad, found.worst10, found.jain, found.excluded
    (0.875, 0.25, 0.25, 0.5, 0.9, 1)
    """
    values = np.asarray(accuracy, np.float64)
    sizes = np.asarray(test_examples, np.int64)
    if values.ndim != 1 or values.shape != sizes.shape:
        raise RunError(
            "fairness",
            f"accuracies {values.shape} and test sizes {sizes.shape}",
            "Give one of each per client",
        )
    tested = (sizes > 0) & ~np.isnan(values)
    kept = values[tested]
    if not len(kept):
        nan = float("nan")
        return Fairness(nan, nan, nan, nan, nan, 0, len(values))
    distance = np.abs(1 - kept)
    worst = np.sort(kept)[: math.ceil(WORST_SHARE * len(kept) - 1e-9)]
    return Fairness(
        weighted=weighted_mean(values, sizes),
        ad=float(distance.mean()),
        sdad=float(distance.std()),
        worst10=float(worst.mean()),
        jain=jain(kept),
        clients=len(kept),
        excluded=int(len(values) - len(kept)),
    )


def weighted_mean(values: ArrayLike, examples: ArrayLike) -> float:
    """sum n_k v_k / sum n_k over the clients whose value is known; nan if there is none.

    >>> weighted_mean([1.0, 0.5, float("nan")], [30, 10, 0])
    0.875
    """
    numbers = np.asarray(values, np.float64)
    sizes = np.asarray(examples, np.float64)
    known = ~np.isnan(numbers) & (sizes > 0)
    if not known.any():
        return float("nan")
    return float(sizes[known] @ numbers[known] / sizes[known].sum())


def ecdf(accuracy: ArrayLike) -> tuple[Floats, Floats]:
    """Where the empirical distribution steps up, and to what.

    F(a) = share of clients with accuracy <= a, right-continuous.

    >>> ecdf([0.5, 1.0, 0.5, float("nan")])
    (array([0.5, 1. ]), array([0.66666667, 1.        ]))
    """
    values = np.asarray(accuracy, np.float64).ravel()
    steps, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    return steps, np.cumsum(counts) / max(1, counts.sum())


def ecdf_at(accuracy: ArrayLike, points: ArrayLike) -> Floats:
    """F at some points.

    >>> ecdf_at([0.5, 1.0, 0.5], [0.49, 0.5, 0.99, 1.0])
    array([0.        , 0.66666667, 0.66666667, 1.        ])
    """
    steps, shares = ecdf(accuracy)
    place = np.searchsorted(steps, np.asarray(points, np.float64), side="right")
    return np.concatenate([[0.0], shares])[place]
