"""A mean over seeds and how far it can be trusted: Student's t interval, and a bootstrap
interval of paired differences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedskew.streams import stream
from fedskew.types import Floats

LEVEL = 0.95
RESAMPLES = 10_000
# Seeds: a percentile interval of n differences of one sign never holds 0, and n signs agree by
# chance once in 2^(n-1) times: every fourth time for 3 seeds, 6 % for 5.
FEWEST = 5


@dataclass(frozen=True)
class Estimate:
    """Mean over ``n`` seeds with its 95 % interval; nan bounds: too few seeds to say. Censored
    seeds count at their bound.
    """

    mean: float
    low: float
    high: float
    n: int
    censored: int = 0

    @property
    def half_width(self) -> float:
        """Half the interval."""
        return (self.high - self.low) / 2

    @property
    def is_real(self) -> bool:
        """Whether an interval of differences leaves 0 outside, from five seeds on."""
        return self.n >= FEWEST and not math.isnan(self.low) and (self.low > 0 or self.high < 0)


def mean_interval(values: Sequence[float] | Floats, *, censored: int = 0) -> Estimate:
    """Mean and t interval; unknown values (nan) are left out.

    >>> estimate = mean_interval([1.0, 2.0, 3.0])
    >>> estimate.mean, round(estimate.low, 4), round(estimate.high, 4)
    (2.0, -0.4841, 4.4841)
    """
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    if not len(known):
        return Estimate(math.nan, math.nan, math.nan, 0, censored)
    mean = float(known.mean())
    if len(known) < 2:
        return Estimate(mean, math.nan, math.nan, 1, censored)
    from scipy.special import stdtrit  # Student's t quantile, without the import of scipy.stats

    spread = known.std(ddof=1) / math.sqrt(len(known))
    half = float(stdtrit(len(known) - 1, (1 + LEVEL) / 2) * spread)
    return Estimate(mean, mean - half, mean + half, len(known), censored)


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate:
    """Mean of (ours - theirs) over the seeds both have, with a percentile bootstrap interval.

    Resampling is seeded: the same runs always give the same interval.

    >>> gap = paired_difference({0: 0.9, 1: 0.8, 2: 0.7}, {0: 0.8, 1: 0.7, 2: 0.6, 3: 0.1})
    >>> gap.n, round(gap.mean, 3), round(gap.low, 3), gap.is_real  # three seeds are too few
    (3, 0.1, 0.1, False)
    """
    seeds = sorted(set(ours) & set(theirs))
    differences = np.array([ours[seed] - theirs[seed] for seed in seeds], np.float64)
    differences = differences[~np.isnan(differences)]
    if not len(differences):
        return Estimate(math.nan, math.nan, math.nan, 0)
    mean = float(differences.mean())
    if len(differences) < 2:
        return Estimate(mean, math.nan, math.nan, 1)
    picks = stream(0, "bootstrap").integers(len(differences), size=(RESAMPLES, len(differences)))
    low, high = np.quantile(differences[picks].mean(axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(mean, float(low), float(high), len(differences))
