"""Which federations of the bank are most like this one, and how much each of them counts.

Features are divided by their spread over the bank; the distance of two federations is the root of
their weighted mean square difference. The nearest ones count, with a weight that falls to 0 at the
first that no longer does (tricube), so nothing jumps when a federation comes a little nearer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedskew.advice.bank import Bank
from fedskew.types import Floats

# By how much a feature counts. Six figures say in six ways how skewed labels are: together they
# count as three, which is about what the others do.
IMPORTANCE: Mapping[str, float] = {
    **dict.fromkeys(("hd", "jsd", "spread", "omega", "wpsi", "classes"), 0.5),
    "group_skew": 2.0,
    "imbalance": 0.5,
    "size_gini": 0.5,
    "clients": 0.5,
    "share": 1.0,
    "num_classes": 1.0,
    "examples": 0.5,
    "steps": 1.0,
    "lr": 0.5,
}
NEAREST = 10  # federations that count
OTHER_DATA = 0.5  # added to a squared distance if both data sets are known and differ
# A federation is unlike the bank if it is this many times farther from it than 95 % of the bank's
# own federations are from the rest.
FAR = 1.5


@dataclass(frozen=True, eq=False)
class Likeness:
    """How far the federations of the bank are from one, and how much they count."""

    distance: Floats  # (F,)
    weights: Floats  # (F,) sum to 1
    gap: float = 0.0  # to the nearest, whatever its data set
    limit: float = np.inf  # a nearest federation beyond it is no neighbour
    outside: tuple[str, ...] = ()  # features that no federation of the bank comes near

    @property
    def order(self) -> list[int]:
        """Federations from the nearest on, those that count."""
        near = np.argsort(self.distance, kind="stable")
        return [int(f) for f in near if self.weights[f] > 0]

    @property
    def everybody(self) -> Likeness:
        """All federations alike, where none is near."""
        return replace(self, weights=np.full(len(self.distance), 1 / len(self.distance)))

    @property
    def is_unlike(self) -> bool:
        """Whether nothing in the bank is like it."""
        return self.gap > self.limit


def likeness(bank: Bank, features: Mapping[str, float], data: str = "") -> Likeness:
    """Of a federation with these features; ``data`` is the name of its data set, if known."""
    point = np.array([features[name] for name in bank.feature_names])
    gaps = _gaps(bank, point)
    gap = float(np.sqrt(gaps.min()))
    own = np.array([one.data for one in bank.federations])
    other = (own != data) & (data in set(own.tolist()))
    distance = np.sqrt(gaps + OTHER_DATA * other)
    limit = FAR * float(np.quantile(_loneliness(bank), 0.95))
    outside = _outside(bank, point) if gap > limit else ()
    return Likeness(distance, weights_of(distance), gap, limit, outside)


def left_out(bank: Bank) -> list[Likeness]:
    """Each federation of the bank as it looks to the others."""
    found = []
    data = np.array([one.data for one in bank.federations])
    for number in range(len(bank.federations)):
        gaps = _gaps(bank, bank.features[number]) + OTHER_DATA * (data != data[number])
        distance = np.sqrt(gaps)
        distance[number] = np.inf
        found.append(Likeness(distance, weights_of(distance)))
    return found


def weights_of(distance: Floats, nearest: int = NEAREST) -> Floats:
    """(F,) tricube weights of the nearest, summing to 1.

    >>> weights_of(np.array([0.0, 1.0, 2.0, np.inf]), nearest=2).round(2).tolist()
    [0.6, 0.4, 0.0, 0.0]
    """
    order = np.sort(distance[np.isfinite(distance)])
    reach = order[nearest] if len(order) > nearest else order[-1] * 1.01
    ratio = np.minimum(distance / max(float(reach), 1e-12), 1.0)
    weights: Floats = (1 - ratio**3) ** 3
    if weights.sum() <= 0:  # the nearest are all equally far
        weights = np.where(distance <= reach, 1.0, 0.0)
    shares: Floats = weights / weights.sum()
    return shares


def _gaps(bank: Bank, point: Floats) -> Floats:
    """(F,) weighted mean square difference from a point."""
    counts = np.array([IMPORTANCE.get(name, 0.0) for name in bank.feature_names])
    apart = (bank.features - point) / _spread(bank)
    gaps: Floats = (apart**2 @ counts) / counts.sum()
    return gaps


def _spread(bank: Bank) -> Floats:
    """(P,) of each feature over the bank; one that never varies counts in its own unit."""
    spread = bank.features.std(axis=0)
    return np.where(spread > 1e-9, spread, 1.0)


def _loneliness(bank: Bank) -> Floats:
    """(F,) how far each federation is from the next."""
    nearest = []
    for number, point in enumerate(bank.features):
        gaps = _gaps(bank, point)
        gaps[number] = np.inf
        nearest.append(float(np.sqrt(gaps.min())))
    return np.array(nearest)


def _outside(bank: Bank, point: Floats) -> tuple[str, ...]:
    """Features by which the point lies outside the bank, the farthest first."""
    low, high = bank.features.min(axis=0), bank.features.max(axis=0)
    beyond = np.maximum(low - point, point - high) / _spread(bank)
    order = np.argsort(-beyond)
    return tuple(bank.feature_names[p] for p in order if beyond[p] > 0)
