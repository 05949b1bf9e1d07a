"""A comparison's figures as texts: estimates with intervals, savings, differences."""

from __future__ import annotations

import math

from fedskew.accounting.targets import Reduction
from fedskew.compare.amounts import STEPS, amount, digits, unit_for
from fedskew.compare.estimates import Estimate
from fedskew.compare.scores import Metric


def estimate_text(estimate: Estimate, metric: Metric) -> str:
    """Mean and half interval; ``>`` where some seeds never reached the target, and how many.

    >>> from fedskew.compare.scores import METRICS
    >>> estimate_text(Estimate(0.9, 0.88, 0.92, 5), METRICS[0])
    '0.900 ±0.020'
    >>> estimate_text(Estimate(30.0, 20, 40, 5, 2), METRICS[7])
    '>30 (2 of 5 never)'
    >>> estimate_text(Estimate(4.63e6, 4.39e6, 4.87e6, 5), METRICS[13])
    '4.63 ±0.24 MB'
    """
    if not estimate.n:
        return "–"
    if estimate.censored:
        never = f" ({estimate.censored} of {estimate.n} never)"
        all_censored = estimate.censored == estimate.n
        return f">{amount(estimate.mean, metric.kind)}{'' if all_censored else never}"
    if not estimate.half_width > 0:  # one seed, or all alike
        return amount(estimate.mean, metric.kind)
    if metric.kind not in STEPS:
        return f"{amount(estimate.mean, metric.kind)} ±{amount(estimate.half_width, metric.kind)}"
    size, unit = unit_for(estimate.mean, metric.kind)
    return f"{digits(estimate.mean / size, 3)} ±{digits(estimate.half_width / size, 2)} {unit}"


def change_text(saving: Reduction) -> str:
    """A saving as the change it is, with a bound where a seed never reached the target.

    >>> change_text(Reduction(0.25))
    '-25.0 %'
    >>> change_text(Reduction(-0.5, "at most")), change_text(Reduction(0.4, "at least"))
    ('≥ +50.0 %', '≤ -40.0 %')
    """
    if saving.value is None:
        return "–"
    sign = {"": "", "at least": "≤ ", "at most": "≥ "}[saving.bound]
    return f"{sign}{0.0 - 100 * saving.value:+.1f} %"


def difference_text(difference: Estimate) -> str:
    """A paired difference of shares with its interval; a star where it leaves 0 outside.

    >>> difference_text(Estimate(0.02, 0.01, 0.03, 5))
    '+0.020 [+0.010, +0.030]*'
    >>> difference_text(Estimate(-0.02, -0.04, 0.01, 5))
    '-0.020 [-0.040, +0.010]'
    """
    if not difference.n:
        return "–"
    if math.isnan(difference.low):
        return f"{difference.mean:+.3f}"
    interval = f"[{difference.low:+.3f}, {difference.high:+.3f}]"
    return f"{difference.mean:+.3f} {interval}{'*' if difference.is_real else ''}"
