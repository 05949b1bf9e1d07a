"""What a method's lead costs, and who pays for it: half a sentence each, for the verdict."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedskew.accounting.targets import Reduction, saving
from fedskew.compare.amounts import amount, listed, points
from fedskew.compare.estimates import FEWEST
from fedskew.compare.ranking import ComparisonTable, Entry, TableRow
from fedskew.compare.scores import METRIC
from fedskew.compare.standing import lead_over, standing
from fedskew.foreign import printable
from fedskew.types import Floats

# resource -> less of it, what follows the amount, what it is called after a number
RESOURCES = {
    "bytes": ("fewer bytes", "", "bytes"),
    "time": ("less time", " of simulated time", "time"),
    "energy": ("less energy", "", "energy"),
}
OPPOSITE = {"at least": "at most", "at most": "at least", "": ""}  # bounds: of a saving, of a cost
SAME = 0.005  # of the other's cost: too little to print


# ---------------------------------------------------------------- cost


def cost_text(table: ComparisonTable, row: TableRow, rival: TableRow | None, subject: str) -> str:
    """What a method took to reach the target, or in all, and how that compares with a rival."""
    reached = row.estimates["rounds_to"]
    if table.target is None or not reached.n:
        return f"{subject} took {_spent(row, rival, '')}"
    target = f"{table.target:g}"
    if not reached.censored:
        return f"{subject} took {_spent(row, rival, '_to', f' to reach {target}')}"
    in_all = f"and took {_spent(row, rival, '', ' in all')}"
    others = _who_reached(table, row)
    if reached.censored == reached.n:
        return f"{subject} never reached {target}{others} {in_all}"
    return f"{subject} missed {target} in {reached.censored} of {reached.n} seeds{others} {in_all}"


def _spent(row: TableRow, rival: TableRow | None, suffix: str, to: str = "") -> str:
    known = [key for key in RESOURCES if row.estimates[key + suffix].n]
    if not known:
        return f"an amount of bytes, time and energy that is not known{to}"
    amounts = [_amount(row, key, suffix) for key in known]
    changes = [] if rival is None else [_change(row, rival, key, suffix) for key in known]
    said = [change for change in changes if change]
    if rival is None or not said:
        return f"{listed(amounts)}{to}"
    other = printable(rival.label)
    if changes == [_as_much(key) for key in known]:
        return f"{listed(amounts)}{to}, as much as {other}"
    return f"{listed(amounts)}{to} (against {other} {', '.join(said)})"


def _amount(row: TableRow, key: str, suffix: str) -> str:
    metric = METRIC[key + suffix]
    return f"{amount(row.estimates[metric.key].mean, metric.kind)}{RESOURCES[key][1]}"


def _change(row: TableRow, rival: TableRow, key: str, suffix: str) -> str:
    """How much less or more of a resource; "" where nothing can be said."""
    metric = METRIC[key + suffix]
    ours, theirs = (each.estimates[metric.key] for each in (row, rival))
    if not ours.n or not theirs.n:
        return ""
    found = saving((ours.mean, ours.censored), (theirs.mean, theirs.censored))
    gap = lead_over(row, rival, metric).gap
    is_same = found.value is not None and abs(found.value) < SAME
    if not found.bound and not is_same and gap.n >= FEWEST and not gap.is_real:
        return f"about {_as_much(key)}"
    return change_words(found, key)


def change_words(found: Reduction, key: str) -> str:
    """A change in a cost.

    >>> change_words(Reduction(0.5), "bytes"), change_words(Reduction(0.2, "at least"), "time")
    ('50 % fewer bytes', 'at least 20 % less time')
    >>> change_words(Reduction(-0.27), "energy"), change_words(Reduction(-1.2), "bytes")
    ('27 % more energy', '2.2 times the bytes')
    >>> change_words(Reduction(0.001), "bytes"), change_words(Reduction(None), "bytes")
    ('as many bytes', '')

    At least so much saved is at most so much more:

    >>> change_words(Reduction(-0.34, "at least"), "time")
    'at most 34 % more time'
    """
    less, _, noun = RESOURCES[key]
    value = found.value
    if value is None:
        return ""
    if value >= SAME:
        return f"{_bound(found.bound)}{100 * value:.0f} % {less}"
    bound = _bound(OPPOSITE[found.bound])
    if value > -SAME:
        return f"{bound}{_as_much(key)}"
    if value > -1:
        return f"{bound}{-100 * value:.0f} % more {noun}"
    return f"{bound}{1 - value:.1f} times the {noun}"


def _bound(words: str) -> str:
    return f"{words} " if words else ""


def _as_much(key: str) -> str:
    return f"as {'many' if key == 'bytes' else 'much'} {RESOURCES[key][2]}"


def _who_reached(table: ComparisonTable, row: TableRow) -> str:
    """Of the other methods, those that held the target in every seed."""
    others = [other for other in table.rows if other is not row and other.estimates["rounds_to"].n]
    if not others:
        return ""
    held = [printable(o.label) for o in others if not o.estimates["rounds_to"].censored]
    return f" ({listed(held)} held it in every seed)" if held else " (nobody held it in every seed)"


# ---------------------------------------------------------------- clients


def served_text(
    table: ComparisonTable,
    row: TableRow,
    rival: TableRow | None,
    entries: Mapping[str, Entry],
) -> str:
    """For whom a method is worse than its rival."""
    if not row.estimates["worst10"].n:
        return "how single clients fare is not known: they have no test sets of their own"
    worst = amount(row.estimates["worst10"].mean, "share")
    if rival is None or not rival.estimates["worst10"].n:
        return f"the tenth of the clients that it serves worst has {worst}{_best_of(table, row)}"
    with_rival = printable(rival.label)
    gains = client_gains(entries[row.label], entries[rival.label])
    lost = -gains[gains < 0]
    worse = (
        f"{_percent(len(lost) / len(gains))} of the clients are served worse than with "
        f"{with_rival} (by {points(float(lost.mean()))} in the mean)"
        if len(lost)
        else f"no client is served worse than with {with_rival}"
    )
    theirs = amount(rival.estimates["worst10"].mean, "share")
    return f"{worse}, and the worst tenth has {worst} instead of {theirs}{_best_of(table, row)}"


def _percent(share: float) -> str:
    """A share above 0 never reads as none."""
    return f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"


def client_gains(ours: Entry, theirs: Entry) -> Floats:
    """(n,) by how much each client's accuracy differs between two methods, over all seeds that
    both have; clients without a test set are left out.
    """
    other = {run.seed: run for run in theirs.finished}
    pairs = [(run, other[run.seed]) for run in ours.finished if run.seed in other]
    gains = [
        np.subtract(*(np.array(r.clients["accuracy"], np.float64) for r in pair))
        for pair in pairs
        if all("accuracy" in run.clients for run in pair)
    ]
    every = np.concatenate(gains) if gains else np.zeros(0)
    known: Floats = every[~np.isnan(every)]
    return known


def _best_of(table: ComparisonTable, row: TableRow) -> str:
    """Who serves the worst tenth best, if that is another one for real."""
    found = standing(table.rows, METRIC["worst10"])
    if found is None or not found.is_best or found.leader is row:
        return ""
    mean = amount(found.leader.estimates["worst10"].mean, "share")
    return f" ({printable(found.leader.label)} serves it best: {mean})"
