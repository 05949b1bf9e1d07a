"""Several methods on one federation: means with intervals, differences paired by seed.

>>> from fedskew.experiment.run import Run
>>> from fedskew.types import RoundRecord
>>> def record(t, accuracy):
...     return RoundRecord(t, (), {}, {}, (), accuracy, 0.0, 0.0, {})
>>> def played(name, seed, accuracy):
...     recipe = {"name": name, "data": {"use": "digits", "clients": 2}}
...     return Run(recipe, seed, [record(0, 0.1), record(1, accuracy)])
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
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.compare.amounts import listed
from fedskew.compare.coinciding import coinciding
from fedskew.compare.contenders import training_note
from fedskew.compare.estimates import Estimate
from fedskew.compare.lineup import in_order, read_lineups
from fedskew.compare.ranking import (
    ComparisonTable,
    Entry,
    method_row,
    method_scores,
    reference_row,
    without_global,
)
from fedskew.compare.scores import METRICS, scores_of
from fedskew.compare.standing import winner
from fedskew.compare.verdict import verdict
from fedskew.errors import DataError, RunFolderError, did_you_mean
from fedskew.experiment.figures import RESOURCES, Resource, total
from fedskew.experiment.notebook import OF_CLIENTS, curves_svg, table_html
from fedskew.experiment.run import Run
from fedskew.experiment.run_folders import find_runs
from fedskew.experiment.tables import TABLES, Row, rows_of, to_arrow, to_pandas
from fedskew.records import COMPUTED, UNCHECKED, no_none

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 6  # methods named in a repr
FEDERATION = ("data", "partition", "devices", "faults")  # tables of a recipe that must agree


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Methods in the order they were given; the first is the one the others are compared with.

    References say what could be had without a personalised method. They are shown beside the
    methods and never ranked.
    """

    entries: tuple[Entry, ...]
    references: tuple[Entry, ...] | None = None  # None: not wanted

    @classmethod
    def of(
        cls,
        runs: Iterable[Run],
        labels: Mapping[str, str] | None = None,
        *,
        references: bool | None = None,
    ) -> Comparison:
        """Compare :class:`fedskew.Run` values; runs with one resolved recipe are one method.

        ``labels``: fingerprint -> what to call the method, where its name does not say enough.
        ``references``: whether to show those that the runs hold
        (:func:`fedskew.experiment.references.with_references`) and to take ``local_only`` as one of
        them; None: if any method is personalised.
        """
        groups: dict[str, list[Run]] = {}
        for run in _checked(runs):
            groups.setdefault(run.fingerprint, []).append(run)
        if not groups:
            raise DataError("comparison", "there are no runs", "Give at least one run folder")
        names = _distinct([(labels or {}).get(key, group[0].name) for key, group in groups.items()])
        entries = [
            Entry(name, tuple(sorted(group, key=lambda run: run.seed)))
            for name, group in zip(names, groups.values(), strict=True)
        ]
        for entry in entries:
            _check_seeds(entry)
        _check_one_federation(entries)
        if references is None:
            references = any(entry.is_personalised for entry in entries)
        return cls(*_apart(entries)) if references else cls(tuple(entries))

    @classmethod
    def read(cls, *folders: str | Path, references: bool | None = None) -> Comparison:
        """Compare run folders, or all runs below the given folders; each run counts once.

        Methods come in the order in which they were compared there, if they were, else by name.
        """
        runs = _each_once([Run.read(folder) for folder in find_runs(folders)])
        lineup = read_lineups(folders)
        places = in_order(dict.fromkeys(run.fingerprint for run in runs), lineup)
        runs = sorted(runs, key=lambda run: places.index(run.fingerprint))
        return cls.of(runs, lineup, references=references)

    def against(self, baseline: str) -> Comparison:
        """The same with this method first, so that the others are compared with it."""
        labels = [entry.label for entry in self.entries]
        if baseline not in labels:
            raise DataError(
                "baseline", f"there is no method '{baseline}'", did_you_mean(baseline, labels)
            )
        return replace(
            self, entries=tuple(sorted(self.entries, key=lambda entry: entry.label != baseline))
        )

    def __repr__(self) -> str:
        names = [entry.label for entry in self.entries]
        shown = ", ".join(names[:SHOWN]) + (" ..." if len(names) > SHOWN else "")
        return f"Comparison({shown}; {sum(len(entry.runs) for entry in self.entries)} runs)"

    def _repr_html_(self) -> str:
        """What a notebook shows: means with their intervals, and the curves of the first seeds."""
        curves = {
            entry.label + ("" if curve.is_global else OF_CLIENTS): curve.points
            for entry in self.entries
            for curve in (entry.runs[0].curve,)
        }
        drawn = curves_svg(curves, f"accuracy by round, seed {self.entries[0].runs[0].seed}")
        if not any(entry.finished for entry in self.entries):
            return table_html([(repr(self), "no run is finished")]) + drawn
        table = self.table()
        metrics = [m for m in table.metrics if m.kind == "share"]
        rows = [
            [name, *(_share_text(row.estimates.get(m.key)) for m in metrics)]
            for name, row in (
                *((row.label, row) for row in table.rows),
                *((f"reference: {row.label}", row) for row in table.references),
            )
        ]
        notes = table_html([(note,) for note in table.notes]) if table.notes else ""
        return table_html(rows, ["", *(m.title for m in metrics)]) + drawn + notes

    @property
    def runs(self) -> list[tuple[Entry, Run]]:
        """Everything that was played, methods first, then references."""
        entries = (*self.entries, *(self.references or ()))
        return [(entry, run) for entry in entries for run in entry.runs if run.rounds]

    # ---------------------------------------------------------------- tidy

    def rows(self, table: str) -> list[Row]:
        """One of "rounds", "choices", "transfers", "clients" of all runs, or "scores".

        Of "scores" there is a row per run and metric.
        """
        if table == "scores":
            return self.table().as_rows()
        if table not in TABLES:
            raise DataError(
                "table", f"there is no table '{table}'", did_you_mean(table, [*TABLES, "scores"])
            )
        return [
            {**row, "recipe": entry.label, "reference": is_reference}
            for is_reference, entries in ((False, self.entries), (True, self.references or ()))
            for entry in entries
            for run in entry.runs
            for row in rows_of(run, table)
        ]

    def frame(self, table: str) -> pd.DataFrame:
        """:meth:`rows` as pandas."""
        return to_pandas(self.rows(table))

    def arrow(self, table: str) -> Any:
        """:meth:`rows` as a pyarrow.Table."""
        return to_arrow(self.rows(table))

    # ---------------------------------------------------------------- figures

    def smallest_total(self, resource: Resource) -> float:
        """What every finished run has spent at least; nan if one of them does not know."""
        totals = [total(run, resource) for entry in self.entries for run in entry.finished]
        return min(totals) if totals and not any(map(math.isnan, totals)) else math.nan

    @cached_property
    def _plain_scores(self) -> dict[int, dict[str, float]]:
        return {id(run): scores_of(run) for entry in self.entries for run in entry.finished}

    @cached_property
    def _tables(self) -> dict[tuple[float | None, Resource], ComparisonTable]:
        return {}

    def table(self, *, target: float | None = None, budget: Resource = "rounds") -> ComparisonTable:
        """Mean and 95 % interval of every metric, and differences against the first method
        paired by seed. Made once for each target and budget.
        """
        if budget not in RESOURCES:
            raise DataError(
                "budget", f"'{budget}' is not a resource", did_you_mean(budget, RESOURCES)
            )
        if target is not None and not (isinstance(target, Real) and 0 < target <= 1):
            raise DataError(
                "target", f"{target!r} is not an accuracy", "Give a share, for example 0.9"
            )
        if (target, budget) not in self._tables:
            self._tables[target, budget] = self._table(target, budget)
        return self._tables[target, budget]

    def _table(self, target: float | None, budget: Resource) -> ComparisonTable:
        size = self.smallest_total(budget)
        done = [entry for entry in self.entries if entry.finished]
        if not done:
            raise RunFolderError("comparison", "no run is finished", "Finish them with --resume")
        scored = [method_scores(entry, self._plain_scores, budget, size, target) for entry in done]
        # figures of one global model have no place for others
        if len({entry.is_personalised for entry in done}) > 1:
            scored = [
                without_global(scores) if entry.is_personalised else scores
                for entry, scores in zip(done, scored, strict=True)
            ]
        rows = tuple(
            method_row(entry, scores, scored[0]) for entry, scores in zip(done, scored, strict=True)
        )
        metrics = tuple(
            m
            for m in METRICS
            if any(row.estimates[m.key].n for row in rows) and (target or not m.to_target)
        )
        best = {m.key: number for m in metrics if (number := winner(rows, m)) is not None}
        references = tuple(
            reference_row(entry) for entry in self.references or () if entry.finished
        )
        with_rows = (entry.label for entry in self.entries if any(r.references for r in entry.runs))
        return ComparisonTable(
            rows,
            metrics,
            best,
            target,
            budget,
            size,
            tuple(self.notes()),
            references,
            next(with_rows, ""),
        )

    def verdict(self, *, target: float | None = None, budget: Resource = "rounds") -> str:
        """The comparison in two or three sentences: who won and how sure that is, what it cost,
        for whom it is worse, and whether a plain reference beats everybody.
        """
        return " ".join(verdict(self.table(target=target, budget=budget), self.entries))

    def notes(self) -> list[str]:
        """What to know before trusting the table."""
        notes = [
            f"not finished, so not in the table: {_where(run)} (round {_reached(run)})"
            for _, run in self.runs
            if not run.finished
        ]
        notes += dict.fromkeys(note for _, run in self.runs for note in run.notes)
        if unchecked := sum(not run.checked for _, run in self.runs):
            notes.append(f"{unchecked} of {len(self.runs)} runs: {UNCHECKED}")
        seeds = {tuple(r.seed for r in entry.finished) for entry in self.entries if entry.finished}
        if len(seeds) > 1:
            notes.append("methods have different seeds; differences use those both have")
        notes += [
            f"{listed([entry.label for entry in group])} coincide: "
            "the same accuracy in every round of every seed"
            for group in coinciding(self.entries)
        ]
        if note := training_note({entry.label: entry.recipe for entry in self.entries}):
            notes.append(note)
        return notes + (
            _reference_notes(self.entries, self.references) if self.references is not None else []
        )


def _share_text(estimate: Estimate | None) -> str:
    """A mean and half its interval; a dash where there is no figure."""
    if estimate is None or not estimate.n:
        return "–"
    half = "" if math.isnan(estimate.low) else f" ±{estimate.half_width:.3f}"
    return f"{estimate.mean:.3f}{half}"


def _apart(entries: Sequence[Entry]) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """(Methods, references): ``local_only`` beside others, and the rows kept with the first
    method that has any.
    """
    alone = [
        entry for entry in entries if entry.recipe.get("procedure", {}).get("use") == "local_only"
    ]
    methods = [entry for entry in entries if entry not in alone] or list(entries)
    keeping = ([run for run in entry.runs if run.references] for entry in methods)
    rows: dict[str, list[Run]] = {}
    for run in next((runs for runs in keeping if runs), []):
        for name, columns in run.references.items():
            if "failed" not in columns:
                rows.setdefault(name, []).append(_reference_run(name, columns, run))
    references = [entry for entry in alone if entry not in methods]
    return tuple(methods), (*references, *(Entry(name, tuple(runs)) for name, runs in rows.items()))


def _reference_run(name: str, columns: Mapping[str, Any], run: Run) -> Run:
    """A reference row as a run that was never played: it has clients only."""
    clients = {"client": list(range(len(columns["accuracy"]))), **columns}
    return Run({**run.recipe, "name": name}, run.seed, (), clients)


def _reference_notes(methods: Sequence[Entry], references: Sequence[Entry]) -> list[str]:
    """Which references are missing, and why."""
    finished = [run for entry in methods for run in entry.finished]
    notes = [
        f"no reference {name}, seed {run.seed}: {row['failed']}"
        for run in finished
        for name, row in run.references.items()
        if "failed" in row
    ]
    if finished and not any("accuracy" in run.clients for run in finished):
        return [
            "no reference rows: clients have no test sets; set data.client_test to split or matched"
        ]
    computed = any(run.references for run in finished)
    alone = any(entry.runs[0].rounds for entry in references)
    missing = [*([] if alone else ["local_only"]), *([] if computed else COMPUTED)]
    if finished and missing:
        notes.append(f"without the reference rows {', '.join(missing)}: fedskew compare makes them")
    seeds = {run.seed for run in finished}
    lacking = [entry.label for entry in references if {r.seed for r in entry.finished} != seeds]
    return notes + ([f"not for every seed: {', '.join(lacking)}"] if lacking else [])


def _checked(runs: Any) -> list[Run]:
    """What somebody gave to compare, if it is runs."""
    given = list(runs) if isinstance(runs, Iterable) else [runs]
    odd = [type(one).__name__ for one in given if not isinstance(one, Run)]
    if odd or not isinstance(runs, Iterable):
        what = f"{odd[0]} is not a run" if odd else "one run alone is no list"
        remedy = "Give a list of fedskew.Run values; for folders take Comparison.read"
        raise DataError("comparison", what, remedy)
    return given


def _distinct(names: Sequence[str]) -> list[str]:
    """Names that differ.

    >>> _distinct(["a", "b", "a"])
    ['a', 'b', 'a #2']
    """
    return [
        f"{n} #{names[: i + 1].count(n)}" if names[:i].count(n) else n for i, n in enumerate(names)
    ]


def _each_once(runs: Sequence[Run]) -> list[Run]:
    """Of runs read from disk, one of each: a run made twice (by ``run`` and by ``compare``) has the
    same bytes and counts once.
    """
    first: dict[tuple[str, int], Run] = {}
    for run in sorted(runs, key=lambda run: not run.finished):
        first.setdefault((run.fingerprint, run.seed), run)
    return [run for run in runs if any(run is kept for kept in first.values())]


def _check_seeds(entry: Entry) -> None:
    seeds = [run.seed for run in entry.runs]
    twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
    if twice is not None:
        folders = [_where(run) for run in entry.runs if run.seed == twice]
        raise RunFolderError(
            folders[1], f"is the same run as {folders[0]} (recipe and seed)", "Give one of them"
        )


def _check_one_federation(entries: Sequence[Entry]) -> None:
    """All runs must have played on the same data, divided in the same way, on the same devices."""
    remedy = "Compare runs of one federation, or make a report of each"
    first = entries[0].runs[0]
    same_seed: dict[int, Run] = {}
    for run in (run for entry in entries for run in entry.runs):
        if difference := _difference(first.recipe, run.recipe):
            raise RunFolderError(
                _where(run), f"differs from {_where(first)} in {difference}", remedy
            )
        twin = same_seed.setdefault(run.seed, run)
        if (
            run.labels is not None
            and twin.labels is not None
            and not np.array_equal(run.labels.counts, twin.labels.counts)
        ):
            what = f"has other clients than {_where(twin)} with the same seed"
            raise RunFolderError(_where(run), what, remedy)


def _difference(first: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """The first setting in which two federations differ, "" if none does. As they would lie on
    disk: there is no None, and no tuple.
    """
    for table in FEDERATION:
        theirs, ours = (no_none(raw.get(table) or {}) for raw in (first, recipe))
        for key in (*theirs, *ours):
            if theirs.get(key) != ours.get(key):
                return f"{table}.{key} ({ours.get(key)!r} instead of {theirs.get(key)!r})"
    return ""


def _where(run: Run) -> str:
    return str(run.folder) if run.folder is not None else f"{run.name}, seed {run.seed}"


def _reached(run: Run) -> str:
    done = run.rounds[-1].round if run.rounds else 0
    return f"{done} of {run.recipe['run']['rounds']}" if "run" in run.recipe else str(done)
