"""Who leads by a metric, and whether that is real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedskew.compare.estimates import FEWEST, Estimate, paired_difference
from fedskew.compare.ranking import TableRow
from fedskew.compare.scores import Metric

# of the best figure: a smaller lead, however certain, cannot be seen in a table
WORTH_SAYING = 1e-3


@dataclass(frozen=True)
class Lead:
    """How far the leader is ahead of one other row, as the metric counts: positive is better."""

    row: TableRow
    gap: Estimate  # paired by seed
    least: float  # a lead worth saying

    @property
    def is_certain(self) -> bool:
        """Whether the interval leaves 0 outside, from five seeds on, on the right side."""
        return self.gap.is_real and self.gap.mean > 0

    @property
    def is_real(self) -> bool:
        """Whether it is certain, and large enough to be seen."""
        return self.is_certain and self.gap.mean > self.least

    @property
    def has_too_few_seeds(self) -> bool:
        """Whether fewer seeds than it takes are common to both."""
        return self.gap.n < FEWEST


@dataclass(frozen=True)
class Standing:
    """The row with the best mean of a metric, and its leads over the others, the next best first.

    A censored figure is a bound: it beats nobody.
    """

    metric: Metric
    number: int  # of the leader among the rows
    leader: TableRow
    leads: tuple[Lead, ...]

    @property
    def is_best(self) -> bool:
        """The rule for calling a row best: its lead over every other one is real."""
        return (
            bool(self.leads)
            and not self.leader.estimates[self.metric.key].censored
            and all(lead.is_real for lead in self.leads)
        )


def standing(rows: Sequence[TableRow], metric: Metric) -> Standing | None:
    """Who leads by a metric; None where nobody has it, or neither more nor less is better."""
    known = [i for i, row in enumerate(rows) if row.estimates[metric.key].n]
    if not metric.better or not known:
        return None
    order = sorted(known, key=lambda i: -metric.better * rows[i].estimates[metric.key].mean)
    first = order[0]
    leads = tuple(lead_over(rows[first], rows[i], metric) for i in order[1:])
    return Standing(metric, first, rows[first], leads)


def lead_over(ours: TableRow, theirs: TableRow, metric: Metric) -> Lead:
    """By how much one row is better than another."""
    least = WORTH_SAYING * abs(ours.estimates[metric.key].mean)
    mine, other = (_counted(row, metric) for row in (ours, theirs))
    return Lead(theirs, paired_difference(mine, other), least)


def _counted(row: TableRow, metric: Metric) -> dict[int, float]:
    """Seed -> value, so that more is better."""
    return {seed: metric.better * value for seed, value in row.values[metric.key].items()}


def winner(rows: Sequence[TableRow], metric: Metric) -> int | None:
    """The number of the row that is best for real, if one is."""
    found = standing(rows, metric)
    return found.number if found is not None and found.is_best else None
