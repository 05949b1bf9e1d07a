"""What a comparison comes to, in two or three sentences: who won and how sure that is, what it cost
and for whom it is worse, and whether a plain reference beats everybody.

Nothing is called won that the table would not mark as best (:mod:`fedskew.compare.standing`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedskew.compare.amounts import amount, count_text, hundredths, listed, points
from fedskew.compare.coinciding import coinciding, twins_of
from fedskew.compare.consequences import cost_text, served_text
from fedskew.compare.estimates import FEWEST, Estimate
from fedskew.compare.ranking import ComparisonTable, Entry, TableRow
from fedskew.compare.scores import METRIC
from fedskew.compare.standing import Lead, Standing, lead_over, standing
from fedskew.foreign import printable

REFERENCES = {
    "local_only": "every client trains alone",
    "majority_class": "each client's most frequent training label",
    "fine_tuned": "{tuned}'s model, trained on at each client",
    "centralised": "all training data in one place",
}
PLAIN = ("fine_tuned", "local_only", "majority_class")  # those that anybody could use instead


def verdict(table: ComparisonTable, entries: Sequence[Entry]) -> list[str]:
    """The sentences. ``entries`` are the methods of the table."""
    found = headline(table)
    if found is None:
        return ["No method has an accuracy yet: there is nothing to compare."]
    twins = twins_of(found.leader.label, coinciding(entries))
    return [
        f"{_who(found, twins, table.rows[0].label)}{_at_budget(table, found)}.",
        _cost_and_clients(table, found, entries, twins),
        *_clients_and_references(table, found),
    ]


def headline(table: ComparisonTable) -> Standing | None:
    """What methods are judged by: the one global model's final accuracy, if two methods or all
    have it, else how the clients are served by their own models.
    """
    of_global = [row for row in table.rows if row.central and row.estimates["final"].n]
    of_clients = standing(table.rows, METRIC["client_accuracy"])
    if len(of_global) == len(table.rows) or len(of_global) > 1 or of_clients is None:
        return standing(of_global or table.rows, METRIC["final"])
    return of_clients


# ---------------------------------------------------------------- who won


def _who(found: Standing, twins: Sequence[str], first: str) -> str:
    leader, title = printable(found.leader.label), found.metric.title
    mean = amount(found.leader.estimates[found.metric.key].mean, "share")
    others = [lead for lead in found.leads if lead.row.label not in twins]
    if twins:
        also = listed([printable(found.leader.label), *map(printable, twins)])
        begin = f"{also} coincide and have the highest {title}, {mean}"
        return begin if not others else f"{begin}, {_ahead(others[0])}{_doubt(others)}"
    if not others:
        return f"{leader} has {title} {_alone(found)}; no other method has one to compare it with"
    if found.is_best:
        ahead = _ahead(others[0], "the next best")
        return f"{leader} won: {title} {mean}, {ahead}{_base(found, first)}"
    if others[0].has_too_few_seeds:
        return f"{leader} has the highest {title}, {mean}, {_ahead(others[0])}{_doubt(others)}"
    return f"No method won: {leader} has the highest {title}, {mean}, but {_undecided(others)}"


def _alone(found: Standing) -> str:
    estimate = found.leader.estimates[found.metric.key]
    width = "" if math.isnan(estimate.low) else f" ±{amount(estimate.half_width, 'share')}"
    return f"{amount(estimate.mean, 'share')}{width} ({_seeds(estimate.n)})"


def _ahead(lead: Lead, remark: str = "") -> str:
    """By how much, over whom, and how sure that is."""
    over = printable(lead.row.label) + (f", {remark}" if remark else "")
    return f"{points(lead.gap.mean)} above {over} ({interval_text(lead.gap)})"


def interval_text(gap: Estimate) -> str:
    """How sure a difference in accuracy is.

    >>> interval_text(Estimate(0.05, 0.041, 0.063, 5))
    '95 % interval 4.1 to 6.3 points, 5 seeds'
    """
    if math.isnan(gap.low):
        return _seeds(gap.n)
    return f"95 % interval {hundredths(gap.low)} to {points(gap.high)}, {_seeds(gap.n)}"


def _seeds(number: int) -> str:
    return count_text(number, "seed")


def _base(found: Standing, first: str) -> str:
    """The lead over the first method, where that is not the next best."""
    lead = next((lead for lead in found.leads[1:] if lead.row.label == first), None)
    return "" if lead is None else f", {points(lead.gap.mean)} above {printable(first)}"


def _doubt(leads: Sequence[Lead]) -> str:
    few = [lead.gap.n for lead in leads if lead.has_too_few_seeds]
    if few:
        takes = f"too few to call that real: it takes {FEWEST}"
        return f", but {_seeds(min(few))} {'is' if min(few) == 1 else 'are'} {takes}"
    return "" if all(lead.is_real for lead in leads) else f", but {_undecided(leads)}"


def _undecided(leads: Sequence[Lead]) -> str:
    """Which leads are not real, the next best first, and why the first of them is not."""
    open_ = [lead for lead in leads if not lead.is_real]
    first, more = open_[0], open_[1:]
    over = printable(first.row.label)
    if first.is_certain:
        return f"its lead over {over} is less than a thousandth ({interval_text(first.gap)})"
    also = (
        f", and so may that over {listed([printable(m.row.label) for m in more])}" if more else ""
    )
    lead = f"its lead of {points(first.gap.mean)} over {over} may be chance"
    return f"{lead} ({interval_text(first.gap)}){also}"


def _at_budget(table: ComparisonTable, found: Standing) -> str:
    """Whether it is the same at the equal budget that was asked for."""
    cut = standing(table.rows, METRIC["at_budget"])
    if table.budget == "rounds" or found.metric.key != "final" or cut is None or not cut.leads:
        return ""
    at = f"; at equal {table.budget} "
    if not cut.is_best:
        return f"{at}no method is best"
    mean = amount(cut.leader.estimates["at_budget"].mean, "share")
    by = f"({mean}, {points(cut.leads[0].gap.mean)} above {printable(cut.leads[0].row.label)})"
    same = cut.leader.label == found.leader.label
    return (
        f"{at}it is best{' as well' if found.is_best else ''} {by}"
        if same
        else (f"{at}{printable(cut.leader.label)} is best {by}")
    )


# ---------------------------------------------------------------- at what cost, for whom


def _cost_and_clients(
    table: ComparisonTable, found: Standing, entries: Sequence[Entry], twins: Sequence[str]
) -> str:
    rival = rival_of(table, found, twins)
    subject = "It" if found.is_best else printable(found.leader.label)
    cost = cost_text(table, found.leader, rival, subject)
    clients = served_text(table, found.leader, rival, {entry.label: entry for entry in entries})
    return f"{cost}; {clients}."


def rival_of(table: ComparisonTable, found: Standing, twins: Sequence[str]) -> TableRow | None:
    """Whom the leader's cost and clients are held against: the first method, or the next best if
    it leads itself; None if it is alone.
    """
    if table.rows[0].label not in (found.leader.label, *twins):
        return table.rows[0]
    return next((lead.row for lead in found.leads if lead.row.label not in twins), None)


# ---------------------------------------------------------------- the clients' own test sets


def _clients_and_references(table: ComparisonTable, found: Standing) -> list[str]:
    """Who serves the clients best, where the first sentence does not say it, and whether a plain
    reference does it better than every method.
    """
    served = standing(table.rows, METRIC["client_accuracy"])
    if served is None:
        return []
    known = [row for row in table.references if row.estimates["client_accuracy"].n]
    plain = standing([row for row in known if row.label in PLAIN], METRIC["client_accuracy"])
    is_mixed = found.metric.key == "final" and any(not row.central for row in table.rows)
    if plain is None and not is_mixed:
        return []
    begin = f"On the clients' own test sets {_served_best(served)}"
    return [f"{begin}{'' if plain is None else _reference(table, served, plain.leader)}."]


def _served_best(served: Standing) -> str:
    leader = printable(served.leader.label)
    mean = amount(served.leader.estimates["client_accuracy"].mean, "share")
    if not served.leads:
        return f"{leader} has {mean}"
    if served.is_best:
        return f"{leader} is best with {mean}"
    return f"no method is best ({leader} leads with {mean})"


def _reference(table: ComparisonTable, served: Standing, reference: TableRow) -> str:
    """The best plain reference against every method."""
    metric = METRIC["client_accuracy"]
    leads = [lead_over(reference, row, metric) for row in (served.leader, *_rows(served))]
    first, mean = leads[0], amount(reference.estimates[metric.key].mean, "share")
    what = f"{_described(reference, table)} has {mean}"
    if first.gap.mean <= 0:
        return f", and no plain reference does better: {what}"
    how = f"{points(first.gap.mean)} more ({interval_text(first.gap)})"
    if all(lead.is_real for lead in leads):
        return f", but a plain reference beats every method: {what}, {how}"
    if any(lead.has_too_few_seeds for lead in leads):
        return f", but a plain reference is ahead of every method: {what}, {how}{_doubt(leads)}"
    return f", but no method beats a plain reference: {what}, {how}"


def _rows(served: Standing) -> list[TableRow]:
    return [lead.row for lead in served.leads]


def _described(reference: TableRow, table: ComparisonTable) -> str:
    what = REFERENCES[reference.label].format(tuned=printable(table.tuned))
    return f"{reference.label} ({what})"
