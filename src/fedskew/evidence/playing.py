"""One cell played in a process of its own: a run of the recipe, or the study's own measurement.

What it gives is written to ``cell.json`` at once, so that nothing is played twice.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from fedskew.errors import StudyError
from fedskew.evidence.cells import Cell
from fedskew.evidence.rows import Row, reference_rows, row_of
from fedskew.experiment.schedule import Send
from fedskew.records import read_json, write_json, write_sealed

DONE = "cell.json"
SPENT = "spent.json"  # CPU seconds of a run that is not finished yet


@dataclass(frozen=True)
class CellJob:
    """A cell, and the folder it is played in."""

    cell: Cell
    out: str
    maker: Mapping[str, Any]  # version, commit, machine

    def play(self, send: Send) -> Mapping[str, Any]:
        """Its rows and what they cost."""
        folder = Path(self.out)
        folder.mkdir(parents=True, exist_ok=True)
        _warm_up(self.cell)
        clock = Clock(folder)
        with threadpool_limits(1):
            rows = self._measure() if self.cell.grid.measure else self._run(send, clock)
        record = {
            "rows": rows,
            "cpu_seconds": round(clock.spent, 3),
            "seconds": round(clock.wall, 3),
            "maker": self.maker,
        }
        write_sealed(folder / DONE, record)
        return record

    def _measure(self) -> list[Row]:
        found = plugin(self.cell.folder, self.cell.grid.measure)(self.cell)
        return [dict(found)] if isinstance(found, Mapping) else [dict(row) for row in found]

    def _run(self, send: Send, clock: Clock) -> list[Row]:
        from fedskew.experiment.local import run_resolved
        from fedskew.experiment.references import with_references

        def on_round(record: Any) -> None:
            clock.save()
            send("round", record)

        cell, grid = self.cell, self.cell.grid
        result = run_resolved(
            cell.recipe,
            seed=cell.seed,
            workers=1,
            out=Path(self.out) / "run",
            resume=True,
            on_round=on_round,
        )
        row = row_of(result, keep=grid.keep, target=grid.target)
        if cell.choice is not None:
            row["tuned"] = cell.choice.number
        if grid.figures:
            row |= plugin(cell.folder, grid.figures)(cell, result)
        if not cell.wants_references:
            return [row]
        result = with_references(result, on_row=lambda name: send("row", name))
        axis = next(axis.name for axis in grid.axes if axis.names_recipes)
        return [row, *reference_rows(result, axis, grid.keep)]


def _warm_up(cell: Cell) -> None:
    """Import first what takes seconds: it would count as the work of a process's first cell."""
    with suppress(ImportError):
        importlib.import_module("fedskew.runtime.local.trainer")
    for name in filter(None, (cell.grid.measure, cell.grid.figures)):
        plugin(cell.folder, name)


class Clock:
    """CPU and wall seconds of a cell, also those before it was killed."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / SPENT
        kept = read_json(self._file) if self._file.is_file() else {"cpu": 0.0, "wall": 0.0}
        self._cpu = float(kept["cpu"]) - time.process_time()
        self._wall = float(kept["wall"]) - time.monotonic()
        self._saved = time.monotonic()

    @property
    def spent(self) -> float:
        """CPU seconds."""
        return self._cpu + time.process_time()

    @property
    def wall(self) -> float:
        """Seconds on the wall."""
        return self._wall + time.monotonic()

    def save(self) -> None:
        """Keep them, every few seconds."""
        if time.monotonic() - self._saved > 5:
            write_json(self._file, {"cpu": self.spent, "wall": self.wall})
            self._saved = time.monotonic()


def plugin(folder: Path, name: str) -> Callable[..., Any]:
    """The function behind ``"measure.py:play"`` in a study's folder."""
    module = module_of(folder, name)
    function = name.partition(":")[2]
    if not callable(getattr(module, function, None)):
        raise StudyError(str(folder), f"'{name}' is no function", 'Write "measure.py:function"')
    found: Callable[..., Any] = getattr(module, function)
    return found


def module_of(folder: Path, name: str) -> Any:
    """The file in front of the colon, read as a module; again only if it has changed."""
    path = folder / name.partition(":")[0]
    if not path.is_file():
        raise StudyError(str(folder), f"there is no file {path.name}", "Correct study.toml")
    return _module(path, path.stat().st_mtime_ns)


@cache
def _module(path: Path, changed: int) -> Any:
    name = f"evidence_{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise StudyError(str(path), "is no Python file", "Correct study.toml")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def finished(folder: Path) -> Mapping[str, Any] | None:
    """What a cell gave that was played before; None if it was not."""
    return read_json(folder / DONE) if (folder / DONE).is_file() else None
