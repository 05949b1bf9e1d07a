"""How good the adviser is: every federation of the bank is asked about, and left out of it.

The first choice is judged by what it reached there, against the best in hindsight; the intervals by
how often they hold what was reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedskew.advice.bank import Bank
from fedskew.advice.forecast import forecast
from fedskew.advice.nearest import left_out
from fedskew.types import Floats

POINT = 0.01


@dataclass(frozen=True)
class Verdict:
    """Over all federations, at one number of rounds per method."""

    cases: int
    near_best: float  # share of first choices within a point of the best in hindsight
    regret: float  # mean accuracy lost against the best in hindsight
    base_near_best: float  # the same shares if the answer were always the same method
    always: str  # the best method to give always
    always_near_best: float
    covered: float  # share of intervals that hold the truth
    gain_covered: float
    width: float  # mean width of an interval
    gain_width: float


def judge(bank: Bank, rounds: Floats, methods: Sequence[str]) -> Verdict:
    """``rounds`` (F, M): what each method may play in each federation; only ``methods`` count."""
    places = np.array([bank.names.index(name) for name in methods])
    others = left_out(bank)
    regrets, inside, gain_inside, widths, gain_widths, table = [], [], [], [], [], []
    for number, near in enumerate(others):
        found = forecast(bank, near, rounds[number], others=others, skip=number)
        truth = bank.accuracy_at(rounds[number])[number]
        known = places[~np.isnan(truth[places]) & ~np.isnan(found.mean[places])]
        if not len(known):
            continue
        best = truth[known].max()
        chosen = known[np.argmax(found.mean[known])]
        regrets.append(best - truth[chosen])
        table.append(best - truth[places])
        inside += list((found.low <= truth)[known] & (truth <= found.high)[known])
        gain = truth - truth[bank.names.index("fedavg")]
        others_known = known[known != bank.names.index("fedavg")]
        held = (found.gain_low <= gain) & (gain <= found.gain_high)
        gain_inside += list(held[others_known])
        widths += list((found.high - found.low)[known])
        gain_widths += list((found.gain_high - found.gain_low)[others_known])
    lost = np.array(table)
    shares = np.nanmean(lost <= POINT, axis=0)
    always = int(np.argmax(shares))
    return Verdict(
        cases=len(regrets),
        near_best=float(np.mean(np.array(regrets) <= POINT)),
        regret=float(np.mean(regrets)),
        base_near_best=float(shares[list(methods).index("fedavg")]),
        always=methods[always],
        always_near_best=float(shares[always]),
        covered=float(np.mean(inside)),
        gain_covered=float(np.mean(gain_inside)),
        width=float(np.mean(widths)),
        gain_width=float(np.mean(gain_widths)),
    )
