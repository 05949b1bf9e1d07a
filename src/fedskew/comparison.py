"""Several methods on one federation, over seeds: means with intervals, and differences that are paired by seed.

>>> from fedskew.history import History
>>> from fedskew.types import RoundRecord
>>> def record(t, accuracy):
...     return RoundRecord(t, (), {}, {}, (), accuracy, 0.0, 0.0, {})
>>> def played(name, seed, accuracy):
...     recipe = {"name": name, "data": {"use": "digits", "clients": 2}}
...     return History(recipe, seed, [record(0, 0.1), record(1, accuracy)])
>>> ours = [played("ours", seed, 0.8 + seed / 10) for seed in (0, 1)]
>>> table = Comparison.of([played("base", seed, 0.7 + seed / 10) for seed in (0, 1)] + ours).table()
>>> [(row.label, round(row.estimates["final"].mean, 3)) for row in table.rows]
[('base', 0.75), ('ours', 0.85)]
>>> round(table.rows[1].differences["final"].mean, 3)
0.1
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.errors import DataError, RunFolderError, did_you_mean
from fedskew.estimates import Estimate, mean_interval, paired_difference
from fedskew.history import RESOURCES, History, Resource, find_runs, history_of, read_history
from fedskew.recipe import fingerprint
from fedskew.scores import METRICS, Metric, at_budget, scores_of, to_target
from fedskew.tidy import TABLES, Row, rows_of, to_arrow, to_pandas

if TYPE_CHECKING:
    import pandas as pd

FEDERATION = ("data", "partition", "devices", "faults")  # tables of a recipe that must agree


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
    best: Mapping[str, int]  # metric -> the row that beats the runner-up for real: the paired interval leaves 0 outside
    target: float | None
    budget: Resource
    budget_size: float  # the smallest total among the compared runs
    notes: tuple[str, ...] = ()

    def as_rows(self) -> list[Row]:
        """One plain dict per method and metric."""
        return [
            {
                "recipe": row.label,
                "metric": metric.key,
                **{key: getattr(row.estimates[metric.key], key) for key in ("mean", "low", "high", "n", "censored")},
                **{f"difference_{key}": getattr(row.differences[metric.key], key) for key in ("mean", "low", "high", "n")},
                "best": self.best.get(metric.key) == number,
            }
            for number, row in enumerate(self.rows)
            for metric in self.metrics
        ]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods in the order they were given; the first is the one the others are compared with."""

    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, runs: Iterable[Any], labels: Mapping[str, str] | None = None) -> Comparison:
        """Compare :class:`fedskew.Run` values (or histories); runs with one resolved recipe are one method.

        ``labels``: fingerprint -> what to call the method, where its name does not say enough.
        """
        groups: dict[str, list[History]] = {}
        for history in map(history_of, runs):
            groups.setdefault(_key(history), []).append(history)
        if not groups:
            raise DataError("comparison", "there are no runs", "Give at least one run folder")
        names = _distinct([(labels or {}).get(key, group[0].name) for key, group in groups.items()])
        entries = [
            Entry(name, tuple(sorted(group, key=lambda h: h.seed))) for name, group in zip(names, groups.values(), strict=True)
        ]
        for entry in entries:
            _check_seeds(entry)
        _check_one_federation(entries)
        return cls(tuple(entries))

    @classmethod
    def read(cls, *folders: str | Path) -> Comparison:
        """Compare run folders, or all runs below the given folders; a run that lies there twice counts once."""
        return cls.of(_each_once([read_history(folder) for folder in find_runs(folders)]))

    # ---------------------------------------------------------------- tidy

    def rows(self, table: str) -> list[Row]:
        """One of "rounds", "choices", "transfers", "clients" of all runs, or "scores": a row per run and metric."""
        if table == "scores":
            return self.table().as_rows()
        if table not in TABLES:
            raise DataError("table", f"there is no table '{table}'", did_you_mean(table, [*TABLES, "scores"]))
        return [{**row, "recipe": e.label} for e in self.entries for history in e.histories for row in rows_of(history, table)]

    def frame(self, table: str) -> pd.DataFrame:
        """:meth:`rows` as pandas."""
        return to_pandas(self.rows(table))

    def arrow(self, table: str) -> Any:
        """:meth:`rows` as a pyarrow.Table."""
        return to_arrow(self.rows(table))

    # ---------------------------------------------------------------- figures

    def smallest_total(self, resource: Resource) -> float:
        """What every finished run has spent at least; nan if one of them does not know."""
        totals = [float(history.spent(resource)[-1]) for entry in self.entries for history in entry.finished]
        return min(totals) if totals and not any(map(math.isnan, totals)) else math.nan

    @cached_property
    def _plain(self) -> dict[int, dict[str, float]]:
        return {id(history): scores_of(history) for entry in self.entries for history in entry.finished}

    def table(self, *, target: float | None = None, budget: Resource = "rounds") -> ComparisonTable:
        """Mean and 95 % interval of every metric, and differences against the first method paired by seed."""
        if budget not in RESOURCES:
            raise DataError("budget", f"'{budget}' is not a resource", did_you_mean(budget, RESOURCES))
        if target is not None and not 0 < target <= 1:
            raise DataError("target", f"{target} is not an accuracy", "Give a share, for example 0.9")
        size = self.smallest_total(budget)
        done = [entry for entry in self.entries if entry.finished]
        if not done:
            raise RunFolderError("comparison", "no run is finished", "Finish them with --resume")
        scored = [_scores(entry, self._plain, budget, size, target) for entry in done]
        if len({entry.finished[0].evaluated[2] for entry in done}) > 1:  # figures of one global model have no place for others
            scored = [_without_global(*found) if e in self.personal else found for e, found in zip(done, scored, strict=True)]
        rows = tuple(
            _row(entry, values, censored, scored[0][0]) for entry, (values, censored) in zip(done, scored, strict=True)
        )
        metrics = tuple(m for m in METRICS if any(row.estimates[m.key].n for row in rows) and (target or not m.to_target))
        best = {m.key: winner for m in metrics if (winner := _winner(rows, m)) is not None}
        return ComparisonTable(rows, metrics, best, target, budget, size, tuple(self.notes()))

    def notes(self) -> list[str]:
        """What to know before trusting the table."""
        open_runs = [h for entry in self.entries for h in entry.histories if not h.finished]
        notes = [f"not finished, so not in the table: {_where(h)} (round {_reached(h)})" for h in open_runs]
        seeds = {tuple(h.seed for h in entry.finished) for entry in self.entries if entry.finished}
        if len(seeds) > 1:
            notes.append("methods have different seeds; differences use those both have")
        if self.personal:
            names = ", ".join(entry.label for entry in self.personal)
            notes.append(f"no global model, so only the clients' own models on their own test sets: {names}")
        return notes

    @property
    def personal(self) -> list[Entry]:
        """Methods with several models."""
        return [e for e in self.entries if e.finished and not e.finished[0].evaluated[2]]


def _key(history: History) -> str:
    """Which runs are one method: the same resolved recipe, or for a dict that is not one, the same name."""
    return fingerprint(history.recipe) if "run" in history.recipe else history.name


def _distinct(names: Sequence[str]) -> list[str]:
    """Names that differ.

    >>> _distinct(["a", "b", "a"])
    ['a', 'b', 'a #2']
    """
    return [f"{n} #{names[: i + 1].count(n)}" if names[:i].count(n) else n for i, n in enumerate(names)]


def _each_once(histories: Sequence[History]) -> list[History]:
    """Those found on disk, one of each: a run made twice (by ``run`` and by ``compare``) has the same bytes and counts once."""
    first: dict[tuple[str, int], History] = {}
    for history in sorted(histories, key=lambda h: not h.finished):
        first.setdefault((_key(history), history.seed), history)
    return [history for history in histories if any(history is kept for kept in first.values())]


def _check_seeds(entry: Entry) -> None:
    seeds = [history.seed for history in entry.histories]
    twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
    if twice is not None:
        folders = [_where(h) for h in entry.histories if h.seed == twice]
        raise RunFolderError(folders[1], f"is the same run as {folders[0]} (recipe and seed)", "Give one of them")


def _check_one_federation(entries: Sequence[Entry]) -> None:
    """All runs must have played on the same data, divided in the same way, on the same devices."""
    first = entries[0].histories[0]
    counts: dict[int, History] = {}
    for history in (h for entry in entries for h in entry.histories):
        for table in FEDERATION:
            ours, theirs = history.recipe.get(table), first.recipe.get(table)
            if ours != theirs:
                what = f"differs from {_where(first)} in {_difference(table, theirs or {}, ours or {})}"
                raise RunFolderError(_where(history), what, "Compare runs of one federation, or make a report of each")
        twin = counts.setdefault(history.seed, history)
        if history.counts is not None and twin.counts is not None and not np.array_equal(history.counts, twin.counts):
            what = f"has other clients than {_where(twin)} with the same seed"
            raise RunFolderError(_where(history), what, "Compare runs of one federation, or make a report of each")


def _difference(table: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    key = next(key for key in (*theirs, *ours) if theirs.get(key) != ours.get(key))
    return f"{table}.{key} ({ours.get(key)!r} instead of {theirs.get(key)!r})"


def _where(history: History) -> str:
    return str(history.folder) if history.folder is not None else f"{history.name}, seed {history.seed}"


def _reached(history: History) -> str:
    done = history.rounds[-1].round if history.rounds else 0
    return f"{done} of {history.recipe['run']['rounds']}" if "run" in history.recipe else str(done)


Scored = tuple[dict[str, dict[int, float]], dict[str, int]]


def _scores(
    entry: Entry, plain: Mapping[int, Mapping[str, float]], budget: Resource, size: float, target: float | None
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


def _without_global(values: dict[str, dict[int, float]], censored: dict[str, int]) -> Scored:
    """Scores of a method with several models beside methods with one: what needs a global accuracy is left empty."""
    empty = {m.key for m in METRICS if m.to_target or m.key in ("final", "best", "at_budget")}
    blank = {key: dict.fromkeys(found, math.nan) if key in empty else found for key, found in values.items()}
    return blank, {key: 0 if key in empty else count for key, count in censored.items()}


def _row(
    entry: Entry, values: dict[str, dict[int, float]], censored: Mapping[str, int], first: Mapping[str, Mapping[int, float]]
) -> TableRow:
    estimates = {key: mean_interval(list(found.values()), censored=censored[key]) for key, found in values.items()}
    differences = {key: paired_difference(found, first[key]) for key, found in values.items()}
    seeds = tuple(history.seed for history in entry.finished)
    return TableRow(entry.label, seeds, values, estimates, differences, entry.finished[0].evaluated[2])


def _winner(rows: Sequence[TableRow], metric: Metric) -> int | None:
    """The best row if it beats every other one for real; a censored figure is a bound and can beat nobody."""
    known = [i for i, row in enumerate(rows) if row.estimates[metric.key].n]
    if not metric.better or len(known) < 2:
        return None
    best = max(known, key=lambda i: metric.better * rows[i].estimates[metric.key].mean)
    if rows[best].estimates[metric.key].censored:
        return None
    mine = rows[best].values[metric.key]
    gaps = [paired_difference(mine, rows[i].values[metric.key]) for i in known if i != best]
    return best if all(gap.is_real and gap.mean * metric.better > 0 for gap in gaps) else None
