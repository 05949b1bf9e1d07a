"""What is to be played of a study: every cell with all that decides its numbers, and its folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedskew.data import DATASETS, load
from fedskew.errors import DataError, StudyError
from fedskew.evidence.cells import Cell
from fedskew.evidence.code import Parts, fingerprint_of, parts_of, roots_of
from fedskew.evidence.results import Finished, Results
from fedskew.evidence.study import Study
from fedskew.evidence.tuning import cells_with


@dataclass(frozen=True)
class Planned:
    """A cell that can be played."""

    place: int  # in the study
    cell: Cell
    parts: Parts  # of the code
    data: str  # digest of data that only the user has
    out: Path

    @property
    def code(self) -> str:
        """What it is played with."""
        return fingerprint_of(self.parts)

    def finished(self, record: Mapping[str, Any]) -> Finished:
        """The cell as it stands in results, from what was kept when it was played."""
        return Finished(
            labels=self.cell.labels,
            seed=self.cell.seed,
            rows=record["rows"],
            maker=0,
            fingerprint=self.cell.fingerprint,
            code=self.code,
            cpu_seconds=record["cpu_seconds"],
            data=self.data,
        )


@dataclass(frozen=True)
class Skipped:
    """A cell that cannot be played here."""

    place: int
    cell: Cell
    why: StudyError


def plans_of(
    study: Study, folder: str, work: Path, results: Results | None = None
) -> tuple[list[Planned], list[Skipped]]:
    """Cells that can be played, and those whose data are not here; what is tuned is chosen by
    these results.
    """
    plans, skipped = [], []
    for place, cell in enumerate(cells_with(study, results)):
        if cell.waits:
            why = StudyError(study.name, f"{cell.title} is not tuned yet", "Make what tunes it")
            skipped.append(Skipped(place, cell, why))
            continue
        try:
            plans.append(_plan(place, cell.in_folder(folder), work / study.name))
        except StudyError as error:
            skipped.append(Skipped(place, cell, error))
    return plans, skipped


def _plan(place: int, cell: Cell, work: Path) -> Planned:
    parts, data = parts_of(roots_of(cell)), _digest(cell)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", "-".join(cell.labels.values())).strip("._")[:60]
    mark = f"{cell.fingerprint}-{fingerprint_of(parts)[:8]}{data[:8]}"
    return Planned(place, cell, parts, data, work / f"{name}-{mark}" / f"seed-{cell.seed}")


def _digest(cell: Cell) -> str:
    """Of data that only the user has: fetched data are checked where they are read."""
    use = cell.needed_folder
    return _digest_of_data(use, str(cell.recipe["data"]["folder"])) if use else ""


def _digest_of_data(name: str, folder: str) -> str:
    try:
        return digest_of_data(name, folder)
    except DataError as error:
        file = DATASETS[name].origin.partition(" ")[0]
        remedy = f"Name the folder with {file}: --data-folder FOLDER, or FEDSKEW_DATA_FOLDER"
        raise StudyError(f"data {name}", error.what, remedy) from None


@cache
def digest_of_data(name: str, folder: str) -> str:
    """Twelve letters that stand for all examples of a dataset."""
    dataset = load(name, folder=folder or None)
    digest = hashlib.sha256()
    for array in (dataset.x, dataset.y, dataset.x_test, dataset.y_test):
        digest.update(str(array.shape).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:12]
