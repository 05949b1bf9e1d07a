"""Label counts of a dataset that is divided among clients, or of a run that was made.

A dataset counts as a whole: all its training examples, before any are set aside to test clients
(``client_test = "none"``). A run folder counts what its clients trained on, after their test
examples were set aside, as its recipe says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedskew import data as datasets
from fedskew.data import Shards
from fedskew.errors import RunFolderError
from fedskew.experiment.run import Run
from fedskew.experiment.run_folders import find_runs
from fedskew.experiment.world import shards_of
from fedskew.measure.counts import Counts, plural
from fedskew.recipe import resolve
from fedskew.records import CLIENTS, UNCHECKED, read_json
from fedskew.types import Signal

Progress = Callable[[int | None, int | None, str], None]
ANY_MODEL = {"use": "custom"}  # nothing is trained


def counts_of_data(
    resolved: Mapping[str, Any], *, seed: int = 0, progress: Progress | None = None
) -> Counts:
    """Counts of the dataset, partition and number of clients that a resolved recipe names.

    >>> counts = counts_of_data(resolve({"data": {"clients": 4, "client_test": "none"}}))
    >>> counts.table.sum().item(), counts.source
    (1797, 'digits, iid, 4 clients, seed 0')
    """
    shards = _shards(resolved, seed, progress)
    notes = [_counted(shards.client_test)]
    if shards.train.report.dropped:
        notes.append(f"{plural(shards.train.report.dropped, 'example')} left over by the partition")
    return _counts(shards, describe(resolved, shards.clients, seed), tuple(notes))


def counts_of_run(
    folder: str | Path, *, progress: Progress | None = None, trust: bool = False
) -> tuple[Counts, int]:
    """(counts of the clients of a run, its seed).

    They are those it kept; if it kept none they are dealt again from its recipe and checked against
    what it recorded. Code that the recipe names is imported for that only with ``trust``.
    """
    folder = Path(folder)
    run = Run.read(folder, trust=trust)
    recipe, seed = run.recipe, run.seed
    notes = () if run.checked else (f"the run was {UNCHECKED}",)
    if run.labels is not None:
        labels = run.labels
        source = f"run {folder}: {describe(recipe, len(labels.counts), seed)}"
        how = _counted(str(run.facts.get("client_test", "auto")))
        kept = Counts(labels.counts, labels.clients, labels.class_names, source, (how, *notes))
        return kept, seed
    if recipe["data"]["use"] == "custom":
        raise RunFolderError(
            str(folder),
            "trained on data of your own, which it does not keep",
            "Give a file of label counts",
        )
    # nothing else of the recipe is needed, and none of it is imported
    resolved = resolve({**{key: recipe[key] for key in ("data", "partition")}, "model": ANY_MODEL})
    shards = _shards(resolved, seed, progress)
    _check_same_clients(folder, run, shards)
    source = f"run {folder}: {describe(resolved, shards.clients, seed)}"
    return _counts(shards, source, (_counted(shards.client_test), *notes)), seed


def counts_of_signal(signal: Signal, source: str) -> Counts:
    """What a server knows of its clients' labels, as counts: a mix times a size, rounded.

    >>> known = Signal([[0.25, 0.75], [0, 0]], [8, 0], "private", epsilon=1.0)
    >>> counts = counts_of_signal(known, "a fleet")
    >>> counts.table.tolist(), counts.notes[0]
    ([[2, 6], [0, 0]], 'private counts (epsilon 1) of 1 of 2 clients')
    """
    sizes = np.maximum(signal.num_examples, 0) * signal.known
    table = np.rint(np.nan_to_num(signal.rows) * sizes[:, None]).astype(np.int64)
    budget = "" if signal.epsilon is None else f" (epsilon {signal.epsilon:g})"
    known = f"{signal.known.sum()} of {plural(len(table), 'client')}"
    note = f"{signal.source} counts{budget} of {known}"
    clients, labels = ([str(number) for number in range(n)] for n in table.shape)
    return Counts(table, clients, labels, source, (note,))


def counts_of_runs(
    folder: str | Path, *, progress: Progress | None = None, trust: bool = False
) -> list[tuple[Counts, int]]:
    """(counts, seed) of every federation among the runs below a folder: methods that were compared
    on the same clients count once.
    """
    found: list[tuple[Counts, int]] = []
    shared: list[int] = []
    for path in find_runs([folder]):
        counts, seed = counts_of_run(path, progress=progress, trust=trust)
        twin = next((i for i, one in enumerate(found) if _same(one, (counts, seed))), None)
        if twin is None:
            found.append((counts, seed))
            shared.append(1)
        else:
            shared[twin] += 1
    return [
        (replace(counts, notes=(*counts.notes, f"the same clients in {runs} runs")), seed)
        if runs > 1
        else (counts, seed)
        for (counts, seed), runs in zip(found, shared, strict=True)
    ]


def _same(one: tuple[Counts, int], other: tuple[Counts, int]) -> bool:
    return one[1] == other[1] and np.array_equal(one[0].table, other[0].table)


def describe(resolved: Mapping[str, Any], clients: int, seed: int) -> str:
    """One line: data, partition with the option that makes it, clients, seed."""
    telling = ("alpha", "similarity", "classes_per_client", "column")
    inside = ", ".join(
        f"{key} = {format(value, 'g') if isinstance(value, float) else value}"
        for key, value in resolved["partition"].items()
        if key in telling
    )
    partition = resolved["partition"]["use"] + (f" ({inside})" if inside else "")
    return f"{resolved['data']['use']}, {partition}, {plural(clients, 'client')}, seed {seed}"


def _shards(resolved: Mapping[str, Any], seed: int, progress: Progress | None) -> Shards:
    dataset = datasets.load(
        resolved["data"]["use"], folder=resolved["data"]["folder"] or None, progress=progress
    )
    return shards_of(resolved, dataset, seed)


def _counts(shards: Shards, source: str, notes: tuple[str, ...]) -> Counts:
    names = shards.train.names or [str(client) for client in range(shards.clients)]
    return Counts(shards.label_counts, names, shards.dataset.class_names, source, notes)


def _counted(client_test: str) -> str:
    if client_test == "split":
        return (
            "counted: what clients train on, "
            "after a share of their examples was set aside to test them"
        )
    if client_test == "auto":  # what it came to is not known here
        return "counted: what clients train on"
    return "counted: all training examples, before any test split at the clients"


def _check_same_clients(folder: Path, run: Run, shards: Shards) -> None:
    """A run may have been given its own split, which no recipe holds: the sizes give it away."""
    recorded = _columns(folder, run).get("examples")
    report, partition = shards.train.report, run.facts.get("partition")
    partition = partition if isinstance(partition, dict) else {}
    same = (
        np.array_equal(recorded, shards.train.sizes)
        if recorded is not None
        else (partition.get("min_size"), partition.get("max_size"))
        == (report.min_size, report.max_size)
    )
    if not same:
        what = (
            "its clients are not those of its recipe "
            "(it was given a split of its own, or the data changed)"
        )
        raise RunFolderError(str(folder), what, "Give a file of label counts")


def _columns(folder: Path, run: Run) -> Mapping[str, Any]:
    """The results of its clients; a run stopped at its very end may have them too."""
    if run.finished or not (folder / CLIENTS).is_file():
        return run.clients
    return read_json(folder / CLIENTS)
