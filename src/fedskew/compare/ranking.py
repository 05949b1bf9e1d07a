"""Methods' figures over seeds: a row each, and differences from the first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedskew.accounting.targets import Reduction, saving
from fedskew.compare.estimates import Estimate, mean_interval, paired_difference
from fedskew.compare.scores import METRICS, OF_CLIENTS, Metric, client_scores, target_scores
from fedskew.experiment.figures import Resource, accuracy_at
from fedskew.experiment.run import Run
from fedskew.experiment.tables import Row


@dataclass(frozen=True, eq=False)
class Entry:
    """One method: its runs over seeds."""

    label: str
    runs: tuple[Run, ...]

    @property
    def finished(self) -> tuple[Run, ...]:
        """Runs that have come to their end."""
        return tuple(run for run in self.runs if run.finished)

    @property
    def is_personalised(self) -> bool:
        """Whether it has ended with several models: there is no global accuracy then."""
        return bool(self.finished) and not self.finished[0].curve.is_global

    @property
    def recipe(self) -> Mapping[str, Any]:
        """The resolved recipe of all its runs."""
        return self.runs[0].recipe


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
        """How much less than the first row another one needed to reach the target
        (docs/methods.md 9.6).
        """
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
                **_estimates(row, metric),
                # against the first row; None where it is no cost
                "saved": (reduction := self.saved(row, metric)).value,
                "saved_bound": reduction.bound,
                "best": self.best.get(metric.key) == number,
                "reference": False,
            }
            for number, row in enumerate(self.rows)
            for metric in self.metrics
        ]
        of_clients = [metric for metric in self.metrics if metric.key in OF_CLIENTS]
        return methods + [
            {
                **_estimates(row, metric),
                "saved": None,
                "saved_bound": "",
                "best": False,
                "reference": True,
            }
            for row in self.references
            for metric in of_clients
        ]


def _estimates(row: TableRow, metric: Metric) -> Row:
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


@dataclass(frozen=True)
class MethodScores:
    """One method's scores by seed."""

    values: Mapping[str, Mapping[int, float]]  # metric -> seed -> value
    censored: Mapping[str, int]  # metric -> seeds that never reached the target


def method_scores(
    entry: Entry,
    plain: Mapping[int, Mapping[str, float]],
    budget: Resource,
    size: float,
    target: float | None,
) -> MethodScores:
    """All scores of a method; ``plain`` has those that need neither a budget nor a target."""
    values: dict[str, dict[int, float]] = {metric.key: {} for metric in METRICS}
    censored = dict.fromkeys(values, 0)
    for run in entry.finished:
        scores = dict(plain[id(run)]) | {"at_budget": accuracy_at(run, budget, size)}
        if target is not None:
            for key, (spent, never) in target_scores(run, target).items():
                scores[key] = spent
                censored[key] += never
        for key in values:
            values[key][run.seed] = scores.get(key, math.nan)
    return MethodScores(values, censored)


def without_global(scores: MethodScores) -> MethodScores:
    """Scores of a method with several models beside methods with one: what needs a global
    accuracy is left empty.
    """
    empty = {m.key for m in METRICS if m.to_target or m.key in ("final", "best", "at_budget")}
    blank = {
        key: dict.fromkeys(by_seed, math.nan) if key in empty else by_seed
        for key, by_seed in scores.values.items()
    }
    censored = {key: 0 if key in empty else count for key, count in scores.censored.items()}
    return MethodScores(blank, censored)


def method_row(entry: Entry, scores: MethodScores, first: MethodScores) -> TableRow:
    """Means over seeds, and differences from ``first`` paired by seed."""
    estimates = {
        key: mean_interval(list(by_seed.values()), censored=scores.censored[key])
        for key, by_seed in scores.values.items()
    }
    differences = {
        key: paired_difference(by_seed, first.values[key]) for key, by_seed in scores.values.items()
    }
    seeds = tuple(run.seed for run in entry.finished)
    central = not entry.is_personalised
    return TableRow(entry.label, seeds, scores.values, estimates, differences, central)


def reference_row(entry: Entry) -> TableRow:
    """What clients have of a reference; nothing else of it is compared."""
    scores = {run.seed: client_scores(run) for run in entry.finished}
    values = {
        metric.key: {seed: by_key.get(metric.key, math.nan) for seed, by_key in scores.items()}
        for metric in METRICS
    }
    estimates = {key: mean_interval(list(by_seed.values())) for key, by_seed in values.items()}
    return TableRow(
        entry.label,
        tuple(scores),
        values,
        estimates,
        dict.fromkeys(values, mean_interval([])),
        central=False,
    )
