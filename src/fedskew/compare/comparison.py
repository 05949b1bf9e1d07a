"""Several methods on one federation, over seeds: means with intervals, and differences that are
paired by seed.

>>> from fedskew.experiment.history import History
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
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.compare.contenders import training_note
from fedskew.compare.ranking import (
    ComparisonTable,
    Entry,
    method_row,
    method_scores,
    reference_row,
    winner,
    without_global,
)
from fedskew.compare.scores import METRICS, scores_of
from fedskew.errors import DataError, RunFolderError, did_you_mean
from fedskew.experiment.history import (
    RESOURCES,
    History,
    Resource,
    find_runs,
    history_of,
    read_history,
)
from fedskew.experiment.tables import TABLES, Row, rows_of, to_arrow, to_pandas
from fedskew.recipe import fingerprint
from fedskew.records import COMPUTED

if TYPE_CHECKING:
    import pandas as pd

FEDERATION = ("data", "partition", "devices", "faults")  # tables of a recipe that must agree


@dataclass(frozen=True, eq=False)
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
        runs: Iterable[Any],
        labels: Mapping[str, str] | None = None,
        *,
        references: bool | None = None,
    ) -> Comparison:
        """Compare :class:`fedskew.Run` values (or histories); runs with one resolved recipe are one
        method.

        ``labels``: fingerprint -> what to call the method, where its name does not say enough.
        ``references``: whether to show those that the runs hold
        (:func:`fedskew.experiment.references.with_references`) and to take ``local_only`` as one of
        them; None: if any method is personalised.
        """
        groups: dict[str, list[History]] = {}
        for history in map(history_of, runs):
            groups.setdefault(_key(history), []).append(history)
        if not groups:
            raise DataError("comparison", "there are no runs", "Give at least one run folder")
        names = _distinct([(labels or {}).get(key, group[0].name) for key, group in groups.items()])
        entries = [
            Entry(name, tuple(sorted(group, key=lambda h: h.seed)))
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
        """Compare run folders, or all runs below the given folders; a run that lies there twice
        counts once.
        """
        return cls.of(
            _each_once([read_history(folder) for folder in find_runs(folders)]),
            references=references,
        )

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

    @property
    def histories(self) -> list[tuple[Entry, History]]:
        """Everything that was played, methods first, then references."""
        return [
            (entry, h)
            for entry in (*self.entries, *(self.references or ()))
            for h in entry.histories
            if h.rounds
        ]

    # ---------------------------------------------------------------- tidy

    def rows(self, table: str) -> list[Row]:
        """One of "rounds", "choices", "transfers", "clients" of all runs, or "scores": a row per
        run and metric.
        """
        if table == "scores":
            return self.table().as_rows()
        if table not in TABLES:
            raise DataError(
                "table", f"there is no table '{table}'", did_you_mean(table, [*TABLES, "scores"])
            )
        return [
            {**row, "recipe": entry.label, "reference": beside}
            for beside, entries in ((False, self.entries), (True, self.references or ()))
            for entry in entries
            for history in entry.histories
            for row in rows_of(history, table)
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
        totals = [
            float(history.spent(resource)[-1])
            for entry in self.entries
            for history in entry.finished
        ]
        return min(totals) if totals and not any(map(math.isnan, totals)) else math.nan

    @cached_property
    def _plain(self) -> dict[int, dict[str, float]]:
        return {
            id(history): scores_of(history) for entry in self.entries for history in entry.finished
        }

    def table(self, *, target: float | None = None, budget: Resource = "rounds") -> ComparisonTable:
        """Mean and 95 % interval of every metric, and differences against the first method
        paired by seed.
        """
        if budget not in RESOURCES:
            raise DataError(
                "budget", f"'{budget}' is not a resource", did_you_mean(budget, RESOURCES)
            )
        if target is not None and not 0 < target <= 1:
            raise DataError(
                "target", f"{target} is not an accuracy", "Give a share, for example 0.9"
            )
        size = self.smallest_total(budget)
        done = [entry for entry in self.entries if entry.finished]
        if not done:
            raise RunFolderError("comparison", "no run is finished", "Finish them with --resume")
        scored = [method_scores(entry, self._plain, budget, size, target) for entry in done]
        # figures of one global model have no place for others
        if len({entry.is_personalised for entry in done}) > 1:
            scored = [
                without_global(*found) if e.is_personalised else found
                for e, found in zip(done, scored, strict=True)
            ]
        rows = tuple(
            method_row(entry, values, censored, scored[0][0])
            for entry, (values, censored) in zip(done, scored, strict=True)
        )
        metrics = tuple(
            m
            for m in METRICS
            if any(row.estimates[m.key].n for row in rows) and (target or not m.to_target)
        )
        best = {m.key: number for m in metrics if (number := winner(rows, m)) is not None}
        beside = tuple(reference_row(entry) for entry in self.references or () if entry.finished)
        tuned = next(
            (entry.label for entry in self.entries if any(h.references for h in entry.histories)),
            "",
        )
        return ComparisonTable(
            rows, metrics, best, target, budget, size, tuple(self.notes()), beside, tuned
        )

    def notes(self) -> list[str]:
        """What to know before trusting the table."""
        open_runs = [h for _, h in self.histories if not h.finished]
        notes = [
            f"not finished, so not in the table: {_where(h)} (round {_reached(h)})"
            for h in open_runs
        ]
        seeds = {tuple(h.seed for h in entry.finished) for entry in self.entries if entry.finished}
        if len(seeds) > 1:
            notes.append("methods have different seeds; differences use those both have")
        if note := training_note({entry.label: entry.recipe for entry in self.entries}):
            notes.append(note)
        return notes + (
            _reference_notes(self.entries, self.references) if self.references is not None else []
        )


def _apart(entries: Sequence[Entry]) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """(Methods, references): ``local_only`` beside others, and the rows kept with the first
    method that has any.
    """
    alone = [
        entry for entry in entries if entry.recipe.get("procedure", {}).get("use") == "local_only"
    ]
    methods = [entry for entry in entries if entry not in alone] or list(entries)
    kept = next(
        (found for entry in methods if (found := [h for h in entry.histories if h.references])), []
    )
    rows: dict[str, list[History]] = {}
    for name, columns, history in (
        (name, columns, h) for h in kept for name, columns in h.references.items()
    ):
        if "failed" not in columns:
            clients = {"client": list(range(len(columns["accuracy"]))), **columns}
            rows.setdefault(name, []).append(
                History({**history.recipe, "name": name}, history.seed, (), clients)
            )
    references = [entry for entry in alone if entry not in methods] + [
        Entry(name, tuple(h)) for name, h in rows.items()
    ]
    return tuple(methods), tuple(references)


def _reference_notes(methods: Sequence[Entry], references: Sequence[Entry]) -> list[str]:
    """Which references are missing, and why."""
    finished = [h for entry in methods for h in entry.finished]
    failed = [
        f"no reference {name}, seed {h.seed}: {row['failed']}"
        for h in finished
        for name, row in h.references.items()
        if "failed" in row
    ]
    if finished and not any("accuracy" in h.clients for h in finished):
        return [
            "no reference rows: clients have no test sets; set data.client_test to split or matched"
        ]
    computed = any(h.references for h in finished)
    alone = any(entry.histories[0].rounds for entry in references)
    missing = [*([] if alone else ["local_only"]), *([] if computed else COMPUTED)]
    if finished and missing:
        failed.append(
            f"without the reference rows {', '.join(missing)}: fedskew compare makes them"
        )
    seeds = {h.seed for h in finished}
    lacking = [entry.label for entry in references if {h.seed for h in entry.finished} != seeds]
    return failed + ([f"not for every seed: {', '.join(lacking)}"] if lacking else [])


def _key(history: History) -> str:
    """Which runs are one method: the same resolved recipe, or for a dict that is not one, the
    same name.
    """
    return fingerprint(history.recipe) if "run" in history.recipe else history.name


def _distinct(names: Sequence[str]) -> list[str]:
    """Names that differ.

    >>> _distinct(["a", "b", "a"])
    ['a', 'b', 'a #2']
    """
    return [
        f"{n} #{names[: i + 1].count(n)}" if names[:i].count(n) else n for i, n in enumerate(names)
    ]


def _each_once(histories: Sequence[History]) -> list[History]:
    """Those found on disk, one of each: a run made twice (by ``run`` and by ``compare``) has the
    same bytes and counts once.
    """
    first: dict[tuple[str, int], History] = {}
    for history in sorted(histories, key=lambda h: not h.finished):
        first.setdefault((_key(history), history.seed), history)
    return [history for history in histories if any(history is kept for kept in first.values())]


def _check_seeds(entry: Entry) -> None:
    seeds = [history.seed for history in entry.histories]
    twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
    if twice is not None:
        folders = [_where(h) for h in entry.histories if h.seed == twice]
        raise RunFolderError(
            folders[1], f"is the same run as {folders[0]} (recipe and seed)", "Give one of them"
        )


def _check_one_federation(entries: Sequence[Entry]) -> None:
    """All runs must have played on the same data, divided in the same way, on the same devices."""
    first = entries[0].histories[0]
    counts: dict[int, History] = {}
    for history in (h for entry in entries for h in entry.histories):
        for table in FEDERATION:
            ours, theirs = history.recipe.get(table), first.recipe.get(table)
            if ours != theirs:
                difference = _difference(table, theirs or {}, ours or {})
                what = f"differs from {_where(first)} in {difference}"
                raise RunFolderError(
                    _where(history),
                    what,
                    "Compare runs of one federation, or make a report of each",
                )
        twin = counts.setdefault(history.seed, history)
        if (
            history.counts is not None
            and twin.counts is not None
            and not np.array_equal(history.counts, twin.counts)
        ):
            what = f"has other clients than {_where(twin)} with the same seed"
            raise RunFolderError(
                _where(history), what, "Compare runs of one federation, or make a report of each"
            )


def _difference(table: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    key = next(key for key in (*theirs, *ours) if theirs.get(key) != ours.get(key))
    return f"{table}.{key} ({ours.get(key)!r} instead of {theirs.get(key)!r})"


def _where(history: History) -> str:
    return (
        str(history.folder)
        if history.folder is not None
        else f"{history.name}, seed {history.seed}"
    )


def _reached(history: History) -> str:
    done = history.rounds[-1].round if history.rounds else 0
    return f"{done} of {history.recipe['run']['rounds']}" if "run" in history.recipe else str(done)
