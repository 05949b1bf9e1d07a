"""The adviser's answer in plain words."""

from __future__ import annotations

import math

from fedskew.advice.adviser import Advice, Choice, gain_is_certain
from fedskew.advice.bank import BASE
from fedskew.advice.budget import Budget
from fedskew.advice.subject import Subject
from fedskew.compare.amounts import amount
from fedskew.distance import skew_figures
from fedskew.measure.counts import plural

KINDS = {"bytes": "bytes", "time": "seconds", "energy": "joules", "rounds": "count"}
MEANINGS = {
    "hd": "how far clients' labels are apart (HD)",
    "jsd": "how far clients' labels are apart (JSD)",
    "spread": "how far clients are from the mean client",
    "omega": "omega",
    "wpsi": "WPSI",
    "classes": "classes per client",
    "group_skew": "skew of a random group of m clients",
    "imbalance": "how rare some labels are",
    "size_gini": "how unequal clients' sizes are",
    "clients": "number of clients",
    "share": "share of clients that train in a round",
    "num_classes": "number of classes",
    "examples": "examples per client",
    "steps": "local steps per round",
    "lr": "learning rate",
}
SMALL = 0.01  # a lead below a point is none


def budget_text(budget: Budget) -> str:
    """A budget as a person says it.

    >>> budget_text(Budget("bytes", 2e8)), budget_text(Budget("rounds", 40.0))
    ('200 MB', '40 rounds')
    """
    if budget.resource == "rounds":
        return plural(int(budget.amount), "round")
    return amount(budget.amount, KINDS[budget.resource])


def paragraph(advice: Advice) -> str:
    """What to switch on, what that gives and costs, how sure that is, and what it rests on."""
    first = advice.choices[0]
    parts = [_who(advice), _what(advice, first), _gain(first), _next(advice), _asks(first)]
    return " ".join(part for part in [*parts, _grounds(advice)] if part)


def _who(advice: Advice) -> str:
    figures = skew_figures(advice.subject.counts.table)
    active = figures.num_clients - len(figures.empty_clients)
    return (
        f"{plural(active, 'client')} with {plural(figures.num_classes, 'class')}, "
        f"{figures.num_examples / active:,.0f} examples each in the mean, "
        f"HD {figures.hd:.2f}, omega {figures.omega:.2f}."
    )


def _what(advice: Advice, first: Choice) -> str:
    of = "clients' own models" if "personal" in first.wanted else "the model"
    rounds = "" if advice.budget.resource == "rounds" else f"({plural(first.rounds, 'round')}) "
    return (
        f"Switch on {first.method}: within {budget_text(advice.budget)} "
        f"{rounds}{of} should reach {_percent(first.accuracy)} "
        f"(90 % interval {_percent(first.low)} to {_percent(first.high)}) "
        f"for {amount(first.spent['bytes'], 'bytes')}, {amount(first.spent['time'], 'seconds')} "
        f"and {amount(first.spent['energy'], 'joules')}."
    )


def _gain(first: Choice) -> str:
    if first.method == BASE:
        return "Nothing in the bank does better than plain FedAvg here."
    if math.isnan(first.gain):
        return "FedAvg cannot play a round of it."
    said = (
        f"That is {_points(first.gain)} against FedAvg at the same budget "
        f"({_points(first.gain_low)} to {_points(first.gain_high)})"
    )
    return f"{said}." if gain_is_certain(first) else f"{said}, so it may also be no gain."


def _next(advice: Advice) -> str:
    first, *others = advice.choices
    close = [one.method for one in others if first.accuracy - one.accuracy < SMALL]
    if not close:
        return ""
    verb = "is" if len(close) == 1 else "are"
    return f"{', '.join(close[:3])} {verb} expected within a point of {first.method}."


def _asks(first: Choice) -> str:
    return f"Each client discloses {', '.join(first.discloses)}."


def _grounds(advice: Advice) -> str:
    size = len(advice.bank.federations)
    if advice.unlike:
        why = ", ".join(MEANINGS.get(name, name) for name in advice.near.outside[:3])
        reason = f" ({why} outside of it)" if why else ""
        warning = f"This federation is unlike anything in the bank of {size}{reason}"
        if advice.pilot:
            return f"{warning}: the answer rests on what was measured here, {_measured(advice)}."
        guess = "the figures are a guess and their intervals do not hold"
        return f"{warning}: {guess}. {_how_to_know(advice.subject)}"
    rests = f"This rests on the {len(advice.near.order)} nearest of {size} federations in the bank"
    more = f" and on what was measured here, {_measured(advice)}" if advice.pilot else ""
    last = int(advice.bank.levels[-1])
    late = (
        f"; it knows no more than {last} rounds, so later ones count as that"
        if advice.beyond
        else ""
    )
    return f"{rests}{more}{late}."


def _measured(advice: Advice) -> str:
    return ", ".join(
        f"{name} {_percent(anchor.accuracy)} after {anchor.rounds:.0f} rounds"
        for name, anchor in advice.pilot.items()
    )


def changes(advice: Advice) -> list[str]:
    """One line per other answer."""
    told: dict[str, list[str]] = {}
    for words, method in advice.rivals:
        told.setdefault(method, []).append(words)
    return [f"{method}: {', or '.join(words)}" for method, words in told.items()]


def _percent(share: float) -> str:
    return f"{share:.3f}"


def _points(share: float) -> str:
    return f"{100 * share:+.1f} points"


def _how_to_know(subject: Subject) -> str:
    """What tells more than a bank that holds nothing alike."""
    if subject.fleet:
        return "Play some rounds of the first choices there (fedskew flower run)."
    if subject.has_data:
        return "Use --pilot."
    return "Runs of the first choices on your data tell more; advise takes their folders."
