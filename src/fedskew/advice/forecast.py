"""What accuracy to expect of each method, and how far that can be trusted.

A forecast is the weighted mean over the nearest federations of the bank, with the same weights for
every method: so differences between methods are paired within federations. Intervals are
conformal: every federation of the bank is forecast from the others, its errors are divided by how
much its neighbours disagree, and the 90 % quantile of these ratios is what an interval is wide.

An anchor is an accuracy that was measured here after some rounds (a run, a pilot). Then only what
lies between it and the question is taken from the bank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedskew.advice.bank import BASE, Bank
from fedskew.advice.nearest import Likeness, left_out
from fedskew.types import Floats

LEVEL = 0.9
FLOOR = 0.01  # neighbours that agree to a hair are no reason for certainty to a hair


@dataclass(frozen=True)
class Anchor:
    """An accuracy that was measured on this federation."""

    rounds: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class Forecast:
    """(M,) each; nan: nothing is known of a method."""

    mean: Floats
    low: Floats
    high: Floats
    # the same of the difference from FedAvg
    gain: Floats
    gain_low: Floats
    gain_high: Floats


def forecast(
    bank: Bank,
    near: Likeness,
    rounds: Sequence[float],
    *,
    anchors: Mapping[str, Anchor] | None = None,
    others: Sequence[Likeness] | None = None,
    skip: int | None = None,
) -> Forecast:
    """Of every method after its own number of rounds.

    ``others``: each federation of the bank as it looks to the others (:func:`left_out`).
    ``skip``: a federation whose errors do not count, because it is the one that is asked about.
    """
    target = bank.accuracy_at(rounds)
    reference, here = _references(bank, anchors or {})
    values, base = target - reference, bank.names.index(BASE)
    everybody = left_out(bank) if others is None else others
    kept = [number for number in range(len(target)) if number != skip]
    mean, half = _interval(values, near.weights, everybody, kept)
    gain, gain_half = _interval(values - values[:, [base]], near.weights, everybody, kept)
    mean, gain = mean + here, gain + here - here[base]
    return Forecast(
        mean=np.clip(mean, 0, 1),
        low=np.clip(mean - half, 0, 1),
        high=np.clip(mean + half, 0, 1),
        gain=gain,
        gain_low=gain - gain_half,
        gain_high=gain + gain_half,
    )


def _references(bank: Bank, anchors: Mapping[str, Anchor]) -> tuple[Floats, Floats]:
    """What forecasts are counted from: (F, M) in the bank, (M,) here. 0 without an anchor; an
    anchored method's own accuracy, the mean of all anchors for the others.
    """
    shape = (len(bank.federations), len(bank.names))
    if not anchors:
        return np.zeros(shape), np.zeros(shape[1])
    own: dict[str, Floats] = {
        name: bank.accuracy_at([anchor.rounds] * shape[1])[:, bank.names.index(name)]
        for name, anchor in anchors.items()
    }
    mean: Floats = np.mean(list(own.values()), axis=0)
    here = float(np.mean([anchor.accuracy for anchor in anchors.values()]))
    there = np.stack([own.get(name, mean) for name in bank.names], axis=1)
    reached = [anchors[name].accuracy if name in anchors else here for name in bank.names]
    return there, np.array(reached)


def _interval(
    values: Floats, weights: Floats, others: Sequence[Likeness], kept: Sequence[int]
) -> tuple[Floats, Floats]:
    """(M,) weighted means and half widths of their intervals."""
    mean, spread = _weighted(values, weights)
    looks = np.array([others[number].weights for number in kept])
    means, spreads = _weighted(values, looks)
    ratios = np.abs(values[list(kept)] - means) / (spreads + FLOOR)
    return mean, _quantile(ratios) * (spread + FLOOR)


def _weighted(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation over federations that are known; weights (F,) or (n, F)."""
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    total = weights @ known
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Floats = weights @ filled / total
        square = weights @ filled**2 / total
    return mean, np.sqrt(np.maximum(square - mean**2, 0.0))


def _quantile(ratios: Floats) -> Floats:
    """(M,) the conformal quantile of each column; inf if there are too few federations to say.

    >>> _quantile(np.arange(1.0, 20.0)[:, None]).tolist(), _quantile(np.ones((5, 1))).tolist()
    ([18.0], [inf])
    """
    found = []
    for column in ratios.T:
        known = np.sort(column[~np.isnan(column)])
        place = math.ceil(LEVEL * (len(known) + 1))
        found.append(known[place - 1] if 0 < place <= len(known) else math.inf)
    return np.array(found)
