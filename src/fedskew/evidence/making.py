"""Play what is missing of a study, and put its results together."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fedskew.data import DATASETS, load
from fedskew.errors import DataError, FedskewError, StudyError
from fedskew.evidence.cells import Cell, cells_of
from fedskew.evidence.code import Parts, fingerprint_of, parts_of
from fedskew.evidence.forecast import Forecast, order_of
from fedskew.evidence.playing import CellJob, finished
from fedskew.evidence.results import Finished, Results, is_current, maker_facts
from fedskew.evidence.study import Study
from fedskew.experiment.schedule import Outcome, run_all
from fedskew.runtime.local.tasks import first_line

WORK = Path("runs") / "evidence"  # cells that were played, and the results of small scales


@dataclass(frozen=True)
class Progress:
    """What somebody who waits is told."""

    done: int
    cells: int
    title: str  # of the cell that has just ended, or gone on by a round
    seconds: float | None  # it took; None: it has not ended
    left: float | None  # until all are done


Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Planned:
    """A cell with all that decides its numbers."""

    cell: Cell
    parts: Parts
    data: str
    out: Path

    @property
    def code(self) -> str:
        """What it is played with."""
        return fingerprint_of(self.parts)


def make(
    study: Study,
    before: Results | None = None,
    *,
    work: Path = WORK,
    folder: str = "",
    workers: int = 1,
    again: bool = False,
    watch: Watch | None = None,
) -> Results:
    """The results of a study; cells of ``before`` that are up to date are kept unless ``again``.

    ``folder``: where the data lie that cannot be fetched. ``workers`` 1: all in this process.
    """
    plans = [_plan(study, cell.in_folder(folder), work) for cell in cells_of(study)]
    kept = {} if again else _kept(plans, before)
    todo = [plan for plan in plans if plan.cell.identity not in kept]
    if again:
        for plan in todo:
            shutil.rmtree(plan.out, ignore_errors=True)
    _play([plan for plan in todo if finished(plan.out) is None], workers, watch)
    return _together(study, plans, kept, before)


def _plan(study: Study, cell: Cell, work: Path) -> Planned:
    parts, data = parts_of(cell), _digest(cell)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", "-".join(cell.labels.values())).strip("._")[:60]
    mark = f"{cell.fingerprint}-{fingerprint_of(parts)[:8]}{data[:8]}"
    return Planned(cell, parts, data, work / study.name / f"{name}-{mark}" / f"seed-{cell.seed}")


def _digest(cell: Cell) -> str:
    """Of data that only the user has: fetched data are checked where they are read."""
    use = cell.needed_folder
    return digest_of_data(use, str(cell.recipe["data"]["folder"])) if use else ""


@cache
def digest_of_data(name: str, folder: str) -> str:
    """Twelve letters that stand for all examples of a dataset."""
    try:
        dataset = load(name, folder=folder or None)
    except DataError as error:
        raise StudyError(
            f"data {name}",
            error.what,
            f"Name the folder with {DATASETS[name].origin.partition(' ')[0]}: "
            "--data-folder FOLDER, or FEDSKEW_DATA_FOLDER",
        ) from None
    digest = hashlib.sha256()
    for array in (dataset.x, dataset.y, dataset.x_test, dataset.y_test):
        digest.update(str(array.shape).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:12]


def _kept(plans: Sequence[Planned], before: Results | None) -> dict[Any, Finished]:
    known = {done.identity: done for done in before.cells} if before else {}
    return {
        plan.cell.identity: done
        for plan in plans
        if (done := known.get(plan.cell.identity)) is not None
        and is_current(plan.cell, done, plan.parts)
        and done.data == plan.data
    }


# ---------------------------------------------------------------- playing


def _play(plans: Sequence[Planned], workers: int, watch: Watch | None) -> None:
    plans = [plans[number] for number in order_of([plan.cell for plan in plans])]
    maker = maker_facts()
    jobs = [CellJob(plan.cell, str(plan.out), maker) for plan in plans]
    watcher = _Watcher([plan.cell for plan in plans], min(workers, len(jobs)) or 1, watch)
    outcomes = (
        _one_by_one(jobs, watcher)
        if workers == 1
        else run_all(jobs, workers, watcher.round, watcher.row, watcher.end)
    )
    failed = [
        f"{plan.cell.title}: {outcome.error}"
        for plan, outcome in zip(plans, outcomes, strict=True)
        if outcome.summary is None
    ]
    if failed:
        raise StudyError(
            "reproduce",
            f"{len(failed)} of {len(plans)} cells failed; the first: {failed[0]}",
            "Correct it, then give the same command: finished cells are kept",
        )


def _one_by_one(jobs: Sequence[CellJob], watcher: _Watcher) -> list[Outcome]:
    outcomes = []
    for number, job in enumerate(jobs):
        try:
            told = {"round": watcher.round, "row": watcher.row}
            outcome = Outcome(job, job.play(lambda kind, x, n=number, t=told: t[kind](n, x)))  # type: ignore[misc]
        except FedskewError as error:
            outcome = Outcome(job, None, str(error))
        except Exception as error:  # somebody's measurement: the other cells go on
            outcome = Outcome(job, None, first_line(error))
        outcomes.append(outcome)
        watcher.end(number, outcome)
    return outcomes


class _Watcher:
    """Turns what processes say into :class:`Progress`."""

    def __init__(self, cells: Sequence[Cell], cores: int, watch: Watch | None) -> None:
        self._cells, self._cores, self._watch = cells, cores, watch
        self._forecast = Forecast.of(cells)

    def round(self, number: int, record: Any) -> None:
        """A round of a cell has ended."""
        rounds = max(1, int(self._cells[number].recipe["run"]["rounds"]))
        self._forecast.shares[number] = record.round / rounds
        self._tell(number, None)

    def row(self, number: int, name: str) -> None:
        """A reference row of a cell is being computed."""
        self._tell(number, None)

    def end(self, number: int, outcome: Outcome) -> None:
        """A cell has ended."""
        seconds = float(outcome.summary["seconds"]) if outcome.summary else 0.0
        self._forecast.seconds[number] = seconds
        self._tell(number, seconds)

    def _tell(self, number: int, seconds: float | None) -> None:
        if self._watch is not None:
            done, left = len(self._forecast.seconds), self._forecast.remaining(self._cores)
            title = self._cells[number].title
            self._watch(Progress(done, len(self._cells), title, seconds, left))


# ---------------------------------------------------------------- results


def _together(
    study: Study,
    plans: Sequence[Planned],
    kept: Mapping[Any, Finished],
    before: Results | None,
) -> Results:
    makers: list[Mapping[str, Any]] = []
    code: dict[str, Parts] = {}
    cells = []
    for plan in plans:
        done = kept.get(plan.cell.identity)
        if done is not None and before is not None:
            maker = before.makers[done.maker]
        else:
            record = finished(plan.out)
            assert record is not None
            maker = record["maker"]
            done = _finished(plan, record)
        if maker not in makers:
            makers.append(maker)
        code[plan.code] = plan.parts
        cells.append(replace(done, maker=makers.index(maker)))
    return Results(study.name, study.scale, makers, cells, code)


def _finished(plan: Planned, record: Mapping[str, Any]) -> Finished:
    return Finished(
        labels=plan.cell.labels,
        seed=plan.cell.seed,
        rows=record["rows"],
        maker=0,
        fingerprint=plan.cell.fingerprint,
        code=plan.code,
        cpu_seconds=record["cpu_seconds"],
        data=plan.data,
    )
