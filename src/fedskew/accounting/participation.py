"""Who gets to train, and how evenly: figures over the counts of a run (docs/methods.md 9.4).

The Jain index is 1 when everybody was chosen equally often and m / K when always the same m clients
were; the Gini coefficient runs the other way, from 0 to nearly 1. Both are nan before anybody was
chosen: not known yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedskew.errors import RunError
from fedskew.types import Floats, Ints, frozen


@dataclass(frozen=True)
class Participation:
    """How evenly clients were chosen up to one round."""

    fewest: int  # times the least chosen client was chosen
    most: int
    gini: float
    jain: float
    share_never: float  # of all clients, never chosen
    # (K,) since each client was last chosen; all rounds so far for those who never were
    rounds_since: Ints
    # times chosen, mean over the worst to the best channels
    mean_by_snr_tercile: tuple[float, float, float] | None = None

    @property
    def longest_wait(self) -> int:
        """Rounds since the client that has waited longest was chosen."""
        return int(self.rounds_since.max(initial=0))


def participation(
    times_selected: ArrayLike, last_selected: ArrayLike, round: int, *, snr: ArrayLike | None = None
) -> Participation:
    """Figures after ``round`` from how often and when each client was last chosen (0 = never).

    >>> figures = participation([4, 0, 2, 2], [4, 0, 3, 4], 4, snr=[9.0, 1.0, 3.0, 2.0])
    >>> figures.fewest, figures.most, figures.gini, round(figures.jain, 3), figures.share_never
    (0, 4, 0.375, 0.667, 0.25)
    >>> figures.rounds_since.tolist(), figures.mean_by_snr_tercile
    ([0, 4, 1, 0], (1.0, 2.0, 4.0))
    """
    times = np.asarray(times_selected, np.int64)
    last = np.asarray(last_selected, np.int64)
    if times.ndim != 1 or times.shape != last.shape or not len(times):
        raise RunError(
            "participation",
            f"counts {times.shape} and rounds {last.shape}",
            "Give one of each per client",
        )
    return Participation(
        fewest=int(times.min()),
        most=int(times.max()),
        gini=gini(times),
        jain=jain(times),
        share_never=float((times == 0).mean()),
        rounds_since=frozen(round - last, np.int64),
        mean_by_snr_tercile=None if snr is None else tercile_means(times, snr),
    )


def jain(times: Ints | Floats) -> float:
    """(sum)^2 / (K * sum of squares).

    >>> jain(np.array([5, 5, 0, 0])), jain(np.array([1, 1]))
    (0.5, 1.0)
    """
    counts = times.astype(np.float64)
    squares = float(np.square(counts).sum())
    return float(counts.sum() ** 2 / (len(counts) * squares)) if squares else float("nan")


def gini(times: Ints) -> float:
    """Mean difference between two clients over twice the mean count.

    >>> gini(np.array([3, 3, 3])), gini(np.array([0, 0, 0, 8]))
    (0.0, 0.75)
    """
    ordered = np.sort(times.astype(np.float64))
    size = len(times)
    total = float(ordered.sum())
    ranks = 2 * np.arange(1, size + 1) - size - 1
    return float(ranks @ ordered / (size * total)) if total else float("nan")


def tercile_means(times: Ints, snr: ArrayLike) -> tuple[float, float, float]:
    """Mean counts of the thirds of clients with the worst, middling and best channels.

    A third without clients is nan.

    Equal SNRs are ranked by id; when K is not a multiple of 3 the worse thirds are the larger ones.
    """
    quality: Floats = np.asarray(snr, np.float64)
    if quality.shape != times.shape or np.isnan(quality).any():
        raise RunError(
            "participation",
            "not every client has a signal-to-noise ratio",
            "Leave snr out, or give one per client",
        )
    thirds = np.array_split(times[np.argsort(quality, kind="stable")], 3)
    worst, middle, best = (float(third.mean()) if len(third) else float("nan") for third in thirds)
    return worst, middle, best
