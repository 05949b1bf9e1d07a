"""What is left of a run, finished or not: its recipe, its rounds, its clients. Reading it needs
no torch and no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from fedskew.accounting.traffic import total_bytes
from fedskew.errors import RunFolderError
from fedskew.recipe import load
from fedskew.records import (
    CLIENTS,
    RECIPE,
    RESULT,
    RUN,
    read_json,
    read_labels,
    read_references,
    read_rounds,
)
from fedskew.types import Floats, Ints, RoundRecord

Resource: TypeAlias = Literal["rounds", "bytes", "time", "energy"]
RESOURCES: tuple[Resource, ...] = get_args(Resource)
DEEPEST = 4  # folders below a given one in which runs are looked for


@dataclass(frozen=True, eq=False)
class History:
    """One run as it lies on disk."""

    recipe: Mapping[str, Any]  # resolved
    seed: int
    rounds: Sequence[RoundRecord]
    # column -> one value per client; empty while the run goes on
    clients: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    finished: bool = True
    counts: Ints | None = None  # (K, C) examples of each class
    class_names: Sequence[str] = ()
    client_names: Sequence[str] = ()
    # row -> columns, or why there is none
    references: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The recipe's name."""
        return str(self.recipe["name"])

    @property
    def num_clients(self) -> int:
        """K."""
        if self.counts is not None:
            return len(self.counts)
        if "client" in self.clients:
            return len(self.clients["client"])
        seen = [
            client for record in self.rounds for chain in record.chains for client in chain.clients
        ]
        return max([int(self.recipe["data"]["clients"]) - 1, *seen]) + 1

    @property
    def evaluated(self) -> tuple[Ints, Floats, bool]:
        """(positions in ``rounds``, accuracies there, whether they are of one global model).

        A method with several models has no global accuracy: then it is the accuracy of the clients'
        own models on their own test sets.
        """
        accuracy = np.array([record.accuracy for record in self.rounds], np.float64)
        central = (
            bool(len(accuracy))
            and not np.isnan(accuracy[1:] if len(accuracy) > 1 else accuracy).all()
        )
        if not central:
            accuracy = np.array([record.client_accuracy for record in self.rounds], np.float64)
        known = np.flatnonzero(~np.isnan(accuracy))
        return known, accuracy[known], central

    def spent(self, resource: Resource) -> Floats:
        """(R,) of a resource after each record: rounds, bytes of all directions, simulated
        seconds, joules; nan = not known.
        """
        if resource == "rounds":
            return np.array([record.round for record in self.rounds], np.float64)
        if resource == "bytes":
            each = [
                sum(total_bytes(record.transfers, way) for way in ("down", "up", "d2d"))
                for record in self.rounds
            ]
        else:
            name = "simulated_seconds" if resource == "time" else "joules"
            each = [getattr(record, name) for record in self.rounds]
        return np.cumsum(_start_at_zero(np.array(each, np.float64)))

    @property
    def times_selected(self) -> Ints:
        """(K,) how often each client was in a plan."""
        chosen = [
            client for record in self.rounds for chain in record.chains for client in chain.clients
        ]
        return np.bincount(np.array(chosen, np.int64), minlength=self.num_clients)


def _start_at_zero(each: Floats) -> Floats:
    """Before training nothing has been spent, if nothing is said of it."""
    if len(each) and np.isnan(each[0]):
        each = each.copy()
        each[0] = 0.0 if len(each) == 1 or not np.isnan(each[1]) else np.nan
    return each


def history_of(run: Any) -> History:
    """The history of a :class:`fedskew.Run` (or of a History: itself)."""
    if isinstance(run, History):
        return run
    counts, classes, names = (read_labels(run.folder) if run.folder is not None else None) or (
        None,
        [],
        [],
    )
    kept = read_references(run.folder) if run.folder is not None else {}
    return History(
        run.recipe,
        run.seed,
        run.rounds,
        run.clients,
        run.facts,
        run.folder,
        True,
        counts,
        classes,
        names,
        kept,
    )


def read_history(folder: str | Path) -> History:
    """Read a run folder, finished or not; a half-written last record is passed over, any other
    damage is an error.
    """
    folder = Path(folder)
    if not (folder / RUN).is_file() or not (folder / RECIPE).is_file():
        raise RunFolderError(
            str(folder), "is not a run folder", "Give the folder that fedskew run wrote"
        )
    facts, recipe = read_json(folder / RUN), load(folder / RECIPE)
    finished = (folder / RESULT).is_file()
    clients = read_json(folder / CLIENTS) if finished else {}
    rounds = read_rounds(folder)
    if finished and not rounds:
        raise RunFolderError(
            str(folder), "is finished but has no rounds", "Remove the folder and run again"
        )
    counts, classes, names = read_labels(folder) or (None, [], [])
    try:
        seed = int(facts["seed"])
    except (KeyError, TypeError, ValueError):
        raise RunFolderError(
            str(folder / RUN), "names no seed", "Remove the folder and run again"
        ) from None
    kept = read_references(folder) if finished else {}
    return History(
        recipe, seed, rounds, clients, facts, folder, finished, counts, classes, names, kept
    )


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """Run folders among the given ones and below them, each once, in order of their names; a
    folder without any is an error.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            raise RunFolderError(
                str(path),
                "is a file" if path.exists() else "does not exist",
                "Give the folder of a run",
            )
        below = [path] if (path / RUN).is_file() else sorted(_below(path, DEEPEST), key=_natural)
        if not below:
            raise RunFolderError(
                str(path),
                "is not a run folder and holds none",
                "Give a folder that fedskew run wrote",
            )
        found += below
    return list({folder.resolve(): folder for folder in found}.values())


def _below(folder: Path, depth: int) -> Iterable[Path]:
    for child in folder.iterdir():
        if child.is_dir() and not child.is_symlink():
            if (child / RUN).is_file():
                yield child
            elif depth > 1:
                yield from _below(child, depth - 1)


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """seed-2 before seed-10."""
    parts = "".join(c if c.isdigit() else f"\0{c}\0" for c in str(path)).split("\0")
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts if part]
