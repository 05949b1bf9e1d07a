"""Play what is missing of a study, and put its results together."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedskew.errors import FedskewError, StudyError
from fedskew.evidence.code import Parts
from fedskew.evidence.forecast import order_of
from fedskew.evidence.planning import Planned, Skipped, plans_of
from fedskew.evidence.playing import CellJob, finished
from fedskew.evidence.results import Finished, Results, is_current, joined, maker_facts
from fedskew.evidence.study import Study
from fedskew.evidence.tuning import tuning_part
from fedskew.evidence.watching import Watch, Watcher
from fedskew.experiment.schedule import Outcome, run_all
from fedskew.runtime.local.tasks import first_line

WORK = Path("runs") / "evidence"  # cells that were played, and the results of small scales
Known = Mapping[Any, Finished]  # identity -> a cell of earlier results


class CellsFailed(StudyError):
    """Some cells could not be made; ``results`` are those of the others."""

    results: Results


def make(
    study: Study,
    before: Results | None = None,
    *,
    work: Path = WORK,
    folder: str = "",
    workers: int = 1,
    again: bool = False,
    minutes: float = math.inf,
    watch: Watch | None = None,
    on_skip: Callable[[str], None] | None = None,
) -> Results:
    """The results of a study; cells of ``before`` that are up to date are kept unless ``again``.

    ``folder``: where the data lie that cannot be fetched; cells without data are not played and
    stay as they were, which ``on_skip`` is told. ``workers`` 1: all in this process. What other
    grids are tuned by is made first. After so many ``minutes`` no other cell begins: the results
    are then those that there are.
    """
    if again and minutes < math.inf:
        what = "played again from the beginning, a piece would never grow"
        raise StudyError("reproduce", what, "Give --again or --minutes, not both")
    until = time.monotonic() + 60 * minutes
    how = _How(work, folder, workers, again, until, watch, on_skip)
    part = tuning_part(study)
    if part is None:
        return _made(study, before, how)
    tried = _made(part, before, how)
    done = {cell.identity for cell in tried.cells}
    return _made(study, joined(tried, before), how, done)


@dataclass(frozen=True)
class _How:
    """What :func:`make` was told."""

    work: Path
    folder: str
    workers: int
    again: bool
    until: float  # of time.monotonic()
    watch: Watch | None
    on_skip: Callable[[str], None] | None

    def enough(self) -> bool:
        """Whether no other cell is to begin."""
        return time.monotonic() >= self.until


def _made(
    study: Study, before: Results | None, how: _How, done: Collection[Any] = frozenset()
) -> Results:
    """The results of a study; cells that are ``done`` are not made again."""
    plans, skipped = plans_of(study, how.folder, how.work, before)
    if not plans:
        raise skipped[0].why
    if skipped and how.on_skip is not None:
        how.on_skip(f"{len(skipped)} cells are not played: {skipped[0].why}")
    known = {cell.identity: cell for cell in before.cells} if before else {}
    kept = {
        plan.cell.identity: known[plan.cell.identity]
        for plan in _current(plans, known)
        if not how.again or plan.cell.identity in done
    }
    todo = [plan for plan in plans if plan.cell.identity not in kept]
    if how.again:
        for plan in todo:
            shutil.rmtree(plan.out, ignore_errors=True)
    failed = _play([plan for plan in todo if finished(plan.out) is None], how)
    left = [plan.cell for plan in todo if finished(plan.out) is None]
    for cell in (*left, *(one.cell for one in skipped)):  # as they were
        if cell.identity in known:
            kept[cell.identity] = known[cell.identity]
    results = _together(study, plans, skipped, kept, before)
    if failed:
        error = CellsFailed(
            "reproduce",
            f"{len(failed)} of {len(todo)} cells failed; the first: {failed[0]}",
            "Correct it, then give the same command: finished cells are kept",
        )
        error.results = results
        raise error
    return results


def _current(plans: Sequence[Planned], known: Known) -> list[Planned]:
    """Cells that earlier results hold as they would be made now."""
    return [
        plan
        for plan in plans
        if (done := known.get(plan.cell.identity)) is not None
        and is_current(plan.cell, done, plan.parts)
        and done.data == plan.data
    ]


# ---------------------------------------------------------------- playing


def _play(plans: Sequence[Planned], how: _How) -> list[str]:
    """Which cells failed, and why."""
    if how.enough():
        return []
    plans = [plans[number] for number in order_of([plan.cell for plan in plans])]
    maker = maker_facts()
    jobs = [CellJob(plan.cell, str(plan.out), maker) for plan in plans]
    watcher = Watcher([plan.cell for plan in plans], max(1, min(how.workers, len(jobs))), how.watch)
    outcomes = (_one_by_one if how.workers == 1 else _at_once)(jobs, how, watcher)
    titles = {str(plan.out): plan.cell.title for plan in plans}
    return [f"{titles[o.job.out]}: {o.error}" for o in outcomes if o.summary is None]


def _at_once(jobs: Sequence[CellJob], how: _How, watcher: Watcher) -> list[Outcome]:
    return run_all(
        jobs,
        how.workers,
        on_round=lambda number, record: watcher.hear(number, "round", record),
        on_row=lambda number, name: watcher.hear(number, "row", name),
        on_end=watcher.end,
        enough=how.enough,
    )


def _one_by_one(jobs: Sequence[CellJob], how: _How, watcher: Watcher) -> list[Outcome]:
    outcomes = []
    for number, job in enumerate(jobs):
        if number and how.enough():
            break
        outcome = _outcome(number, job, watcher)
        watcher.end(number, outcome)
        outcomes.append(outcome)
    return outcomes


def _outcome(number: int, job: CellJob, watcher: Watcher) -> Outcome:
    try:
        return Outcome(job, job.play(lambda kind, content: watcher.hear(number, kind, content)))
    except FedskewError as error:
        return Outcome(job, None, str(error))
    except Exception as error:  # somebody's measurement: the other cells go on
        return Outcome(job, None, first_line(error))


# ---------------------------------------------------------------- results


def _together(
    study: Study,
    plans: Sequence[Planned],
    skipped: Sequence[Skipped],
    kept: Known,
    before: Results | None,
) -> Results:
    """All cells that there are, in the order of the study."""
    makers: list[Mapping[str, Any]] = []
    code: dict[str, Parts] = dict(before.code) if before else {}
    cells = []
    every: list[Planned | Skipped] = [*plans, *skipped]
    for plan in sorted(every, key=lambda one: one.place):
        done = kept.get(plan.cell.identity)
        if done is not None and before is not None:
            maker = before.makers[done.maker]
        elif isinstance(plan, Planned) and (record := finished(plan.out)) is not None:
            done, maker = plan.finished(record), record["maker"]
            code[plan.code] = plan.parts
        else:
            continue  # neither played now nor before
        if maker not in makers:
            makers.append(maker)
        cells.append(replace(done, maker=makers.index(maker)))
    used = {cell.code for cell in cells}
    parts = {name: code[name] for name in sorted(code) if name in used}
    return Results(study.name, study.scale, makers, cells, parts)
