"""Label counts of a dataset that is divided among clients, or of a run that was made.

A dataset counts as a whole: all its training examples, before any are set aside to test clients
(``client_test = "none"``). A run folder counts what its clients trained on, after their test
examples were set aside, as its recipe says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedskew import data as datasets
from fedskew.data import Shards
from fedskew.errors import RunFolderError
from fedskew.experiment.world import shards_of
from fedskew.measure.counts import Counts, drop_unused_labels, plural
from fedskew.recipe import load, resolve
from fedskew.records import CLIENTS, RECIPE, RUN

Progress = Callable[[int | None, int | None, str], None]


def counts_of_data(
    resolved: Mapping[str, Any], *, seed: int = 0, progress: Progress | None = None
) -> Counts:
    """Counts of the dataset, partition and number of clients that a resolved recipe names.

    >>> counts = counts_of_data(resolve({"data": {"clients": 4, "client_test": "none"}}))
    >>> counts.table.sum().item(), counts.source
    (1797, 'digits, iid, 4 clients, seed 0')
    """
    shards = _shards(resolved, seed, progress)
    notes = [_counted(shards)]
    if shards.train.report.dropped:
        notes.append(f"{plural(shards.train.report.dropped, 'example')} left over by the partition")
    return drop_unused_labels(_counts(shards, describe(resolved, shards, seed), tuple(notes)))


def counts_of_run(folder: str | Path, *, progress: Progress | None = None) -> tuple[Counts, int]:
    """(counts of the clients of a run, its seed).

    They are dealt again from its recipe, and checked against what it recorded.
    """
    folder = Path(folder)
    try:
        facts = json.loads((folder / RUN).read_text(encoding="utf8"))
        seed = int(facts["seed"])
    except (OSError, ValueError, KeyError, TypeError):
        raise RunFolderError(
            str(folder), f"is not a run folder: no readable {RUN}", "Give the folder a run wrote"
        ) from None
    resolved = resolve(load(folder / RECIPE))
    if resolved["data"]["use"] == "custom":
        raise RunFolderError(
            str(folder),
            "trained on data of your own, which it does not keep",
            "Give a file of label counts",
        )
    shards = _shards(resolved, seed, progress)
    _check_same_clients(folder, facts, shards)
    source = f"run {folder}: {describe(resolved, shards, seed)}"
    return drop_unused_labels(_counts(shards, source, (_counted(shards),))), seed


def describe(resolved: Mapping[str, Any], shards: Shards, seed: int) -> str:
    """One line: data, partition with the option that makes it, clients, seed."""
    telling = ("alpha", "similarity", "classes_per_client", "column")
    inside = ", ".join(
        f"{key} = {value if isinstance(value, str) else format(value, 'g')}"
        for key, value in resolved["partition"].items()
        if key in telling
    )
    partition = resolved["partition"]["use"] + (f" ({inside})" if inside else "")
    return (
        f"{resolved['data']['use']}, {partition}, {plural(shards.clients, 'client')}, seed {seed}"
    )


def _shards(resolved: Mapping[str, Any], seed: int, progress: Progress | None) -> Shards:
    dataset = datasets.load(
        resolved["data"]["use"], folder=resolved["data"]["folder"] or None, progress=progress
    )
    return shards_of(resolved, dataset, seed)


def _counts(shards: Shards, source: str, notes: tuple[str, ...]) -> Counts:
    names = shards.train.names or [str(client) for client in range(shards.clients)]
    return Counts(shards.label_counts, names, shards.dataset.class_names, source, notes)


def _counted(shards: Shards) -> str:
    if shards.client_test == "split":
        return (
            "counted: what clients train on, "
            "after a share of their examples was set aside to test them"
        )
    return "counted: all training examples, before any test split at the clients"


def _check_same_clients(folder: Path, facts: Mapping[str, Any], shards: Shards) -> None:
    """A run may have been given its own split, which no recipe holds: the sizes give it away."""
    path = folder / CLIENTS
    recorded = json.loads(path.read_text(encoding="utf8"))["examples"] if path.is_file() else None
    report = shards.train.report
    partition = facts.get("partition", {})
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
