"""How good the adviser is: every federation of the bank is asked about, and left out of it.

The first choice is judged by what it reached there, against the best in hindsight; the intervals by
how often they hold what was reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedskew.advice.bank import BASE, Bank
from fedskew.advice.forecast import Forecast, forecast
from fedskew.advice.nearest import left_out
from fedskew.types import Bools, Floats

POINT = 0.01


@dataclass(frozen=True)
class Verdict:
    """Over all federations, at one number of rounds per method."""

    cases: int
    near_best: float  # share of first choices within a point of the best in hindsight
    regret: float  # mean accuracy lost against the best in hindsight
    always: str  # the method that is near best most often
    always_near_best: float  # how often that is
    covered: float  # share of intervals that hold the truth
    gain_covered: float
    width: float  # mean width of an interval
    gain_width: float


@dataclass(frozen=True, eq=False)
class _Case:
    """One federation: what was forecast of M methods, and what they reached."""

    found: Forecast
    truth: Floats
    base: float

    @property
    def known(self) -> Bools:
        return ~np.isnan(self.truth) & ~np.isnan(self.found.mean)

    @property
    def lost(self) -> Floats:
        """(M,) against the best in hindsight."""
        lost: Floats = np.nanmax(self.truth[self.known]) - self.truth
        return lost

    @property
    def chosen(self) -> int:
        return int(np.nanargmax(np.where(self.known, self.found.mean, np.nan)))

    def held(self) -> Bools:
        return (self.found.low <= self.truth) & (self.truth <= self.found.high)

    def gain_held(self) -> Bools:
        gain = self.truth - self.base
        return (self.found.gain_low <= gain) & (gain <= self.found.gain_high)


def judge(bank: Bank, rounds: Floats, methods: Sequence[str]) -> Verdict:
    """``rounds`` (F, M): what each method may play in each federation; only ``methods`` count."""
    cases = [case for case in _cases(bank, rounds, methods) if case.known.any()]
    lost = np.array([case.lost for case in cases])
    chosen = np.array([case.lost[case.chosen] for case in cases])
    shares = (lost <= POINT).mean(axis=0)
    always = int(np.argmax(shares))
    others = [case.known & (np.array(methods) != BASE) for case in cases]
    return Verdict(
        cases=len(cases),
        near_best=float((chosen <= POINT).mean()),
        regret=float(chosen.mean()),
        always=methods[always],
        always_near_best=float(shares[always]),
        covered=_mean([case.held()[case.known] for case in cases]),
        gain_covered=_mean([c.gain_held()[keep] for c, keep in zip(cases, others, strict=True)]),
        width=_mean([(case.found.high - case.found.low)[case.known] for case in cases]),
        gain_width=_mean(
            [
                (case.found.gain_high - case.found.gain_low)[keep]
                for case, keep in zip(cases, others, strict=True)
            ]
        ),
    )


def _cases(bank: Bank, rounds: Floats, methods: Sequence[str]) -> list[_Case]:
    places = [bank.names.index(name) for name in methods]
    others, base = left_out(bank), bank.names.index(BASE)
    cases = []
    for number, near in enumerate(others):
        found = forecast(bank, near, rounds[number], others=others, skip=number)
        truth = bank.accuracy_at(rounds[number])[number]
        few = Forecast(**{name: values[places] for name, values in vars(found).items()})
        cases.append(_Case(few, truth[places], float(truth[base])))
    return cases


def _mean(parts: Sequence[Floats | Bools]) -> float:
    return float(np.concatenate(parts).mean())
