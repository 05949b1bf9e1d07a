"""Methods' figures over seeds: a row each, differences from the first one, and which is best for
real.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedskew.accounting.targets import Reduction, saving
from fedskew.compare.estimates import Estimate, mean_interval, paired_difference
from fedskew.compare.scores import METRICS, Metric, at_budget, client_scores, to_target
from fedskew.experiment.history import History, Resource
from fedskew.experiment.tables import Row

OF_CLIENTS = ("client_accuracy", "ad", "sdad")  # metrics that references have
# of the best figure: a smaller lead, however certain, cannot be seen in a table
WORTH_SAYING = 1e-3


@dataclass(frozen=True, eq=False)
class Entry:
    """One method: its runs over seeds."""

    label: str
    histories: tuple[History, ...]

    @property
    def finished(self) -> tuple[History, ...]:
        """Runs that have come to their end."""
        return tuple(history for history in self.histories if history.finished)

    @property
    def is_personalised(self) -> bool:
        """Whether it has ended with several models: there is no global accuracy then."""
        return bool(self.finished) and not self.finished[0].evaluated[2]

    @property
    def recipe(self) -> Mapping[str, Any]:
        """The resolved recipe of all its runs."""
        return self.histories[0].recipe


@dataclass(frozen=True)
class TableRow:
    """One method's figures."""

    label: str
    seeds: tuple[int, ...]
    values: Mapping[str, Mapping[int, float]]  # metric -> seed -> value
    estimates: Mapping[str, Estimate]
    differences: Mapping[str, Estimate]  # against the first row, paired by seed
    central: bool = True  # accuracies are of one global model on the central test set


@dataclass(frozen=True)
class ComparisonTable:
    """Rows of methods, columns of metrics; columns nobody has a figure for are left out."""

    rows: tuple[TableRow, ...]
    metrics: tuple[Metric, ...]
    # metric -> the row that beats the runner-up for real: the paired interval leaves 0 outside
    best: Mapping[str, int]
    target: float | None
    budget: Resource
    budget_size: float  # the smallest total among the compared runs
    notes: tuple[str, ...] = ()
    references: tuple[TableRow, ...] = ()  # shown beside the rows: no differences, never best
    tuned: str = ""  # the row whose global model the references begin with

    def saved(self, row: TableRow, metric: Metric) -> Reduction:
        """How much less than the first row another one needed to reach the target (METHODS 9.6)."""
        ours, base = row.estimates[metric.key], self.rows[0].estimates[metric.key]
        known = metric.to_target and bool(ours.n and base.n)
        return (
            saving((ours.mean, ours.censored), (base.mean, base.censored))
            if known
            else Reduction(None)
        )

    def as_rows(self) -> list[Row]:
        """One plain dict per method and metric, and then per reference and metric of clients."""
        methods = [
            {
                **_figures(row, metric),
                # against the first row; None where it is no cost
                "saved": (found := self.saved(row, metric)).value,
                "saved_bound": found.bound,
                "best": self.best.get(metric.key) == number,
                "reference": False,
            }
            for number, row in enumerate(self.rows)
            for metric in self.metrics
        ]
        beside = [metric for metric in self.metrics if metric.key in OF_CLIENTS]
        return methods + [
            {
                **_figures(r, metric),
                "saved": None,
                "saved_bound": "",
                "best": False,
                "reference": True,
            }
            for r in self.references
            for metric in beside
        ]


def _figures(row: TableRow, metric: Metric) -> Row:
    return {
        "recipe": row.label,
        "metric": metric.key,
        **{
            key: getattr(row.estimates[metric.key], key)
            for key in ("mean", "low", "high", "n", "censored")
        },
        **{
            f"difference_{key}": getattr(row.differences[metric.key], key)
            for key in ("mean", "low", "high", "n")
        },
    }


Scored = tuple[dict[str, dict[int, float]], dict[str, int]]


def method_scores(
    entry: Entry,
    plain: Mapping[int, Mapping[str, float]],
    budget: Resource,
    size: float,
    target: float | None,
) -> Scored:
    """(metric -> seed -> value, metric -> censored seeds)."""
    values: dict[str, dict[int, float]] = {metric.key: {} for metric in METRICS}
    censored = dict.fromkeys(values, 0)
    for history in entry.finished:
        found = dict(plain[id(history)]) | {"at_budget": at_budget(history, budget, size)}
        if target is not None:
            for key, (spent, never) in to_target(history, target).items():
                found[key] = spent
                censored[key] += never
        for key in values:
            values[key][history.seed] = found.get(key, math.nan)
    return values, censored


def without_global(values: dict[str, dict[int, float]], censored: dict[str, int]) -> Scored:
    """Scores of a method with several models beside methods with one: what needs a global
    accuracy is left empty.
    """
    empty = {m.key for m in METRICS if m.to_target or m.key in ("final", "best", "at_budget")}
    blank = {
        key: dict.fromkeys(found, math.nan) if key in empty else found
        for key, found in values.items()
    }
    return blank, {key: 0 if key in empty else count for key, count in censored.items()}


def method_row(
    entry: Entry,
    values: dict[str, dict[int, float]],
    censored: Mapping[str, int],
    first: Mapping[str, Mapping[int, float]],
) -> TableRow:
    """Means over seeds, and differences from ``first`` paired by seed."""
    estimates = {
        key: mean_interval(list(found.values()), censored=censored[key])
        for key, found in values.items()
    }
    differences = {key: paired_difference(found, first[key]) for key, found in values.items()}
    seeds = tuple(history.seed for history in entry.finished)
    return TableRow(entry.label, seeds, values, estimates, differences, not entry.is_personalised)


def reference_row(entry: Entry) -> TableRow:
    """What clients have of a reference; nothing else of it is compared."""
    scores = {history.seed: client_scores(history.clients) for history in entry.finished}
    values = {
        m.key: {seed: found.get(m.key, math.nan) for seed, found in scores.items()} for m in METRICS
    }
    estimates = {key: mean_interval(list(found.values())) for key, found in values.items()}
    return TableRow(
        entry.label,
        tuple(scores),
        values,
        estimates,
        dict.fromkeys(values, mean_interval([])),
        central=False,
    )


def winner(rows: Sequence[TableRow], metric: Metric) -> int | None:
    """The best row if it beats every other one for real and by a thousandth; a censored figure
    is a bound: it beats nobody.
    """
    known = [i for i, row in enumerate(rows) if row.estimates[metric.key].n]
    if not metric.better or len(known) < 2:
        return None
    best = max(known, key=lambda i: metric.better * rows[i].estimates[metric.key].mean)
    if rows[best].estimates[metric.key].censored:
        return None
    mine = rows[best].values[metric.key]
    gaps = [paired_difference(mine, rows[i].values[metric.key]) for i in known if i != best]
    least = WORTH_SAYING * abs(rows[best].estimates[metric.key].mean)
    return best if all(gap.is_real and gap.mean * metric.better > least for gap in gaps) else None
