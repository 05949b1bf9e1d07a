"""Plays one run, keeps its records, goes on with it after a kill, and finishes it.

The only driver: :mod:`~fedskew.experiment.local` and :mod:`~fedskew.experiment.fleet` build a
:class:`~fedskew.experiment.backend.Backend` and leave the rest to :func:`drive`, so that one recipe
leaves one kind of folder wherever it is played.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from fedskew.errors import RecipeError, RunError, RunFolderError
from fedskew.experiment.backend import Backend, OpenBackend, Session
from fedskew.experiment.budget import budget_of, play_within
from fedskew.experiment.ending import finish
from fedskew.experiment.run import Run
from fedskew.loop.federation import settle
from fedskew.loop.finishing import stage_of
from fedskew.loop.method import Setting
from fedskew.recipe import method_of
from fedskew.records import RunFolder, read_rounds
from fedskew.runtime.faults import Faults, FaultyRuntime
from fedskew.runtime.hostile import HostileRuntime
from fedskew.types import RoundRecord, State

OnRound = Callable[[RoundRecord], None]
PROBE_FAILED = "no usable reply to the probe"  # as loop/probe.py says it


def drive(
    recipe: Mapping[str, Any],
    seed: int,
    open_backend: OpenBackend,
    *,
    out: Path | None = None,
    resume: bool = False,
    wait_seconds: float = 0.0,
    on_round: OnRound | None = None,
) -> Run:
    """Play a resolved recipe from its beginning, or with ``resume`` from its last checkpoint, to
    its end; a run that is complete is only read.

    ``wait_seconds``: how long another process may still hold the folder.
    """
    folder = None if out is None else _open_folder(out, recipe, seed, resume, wait_seconds)
    try:
        state = None if folder is None else folder.restore()
        if folder is not None and folder.finished:
            return Run.load(folder.path)
        reached = -1 if state is None else state.round
        # The workers have the cores: a second BLAS thread here would spin on one of theirs (56 ms
        # instead of 18 for hics at K = 1,000), and sums must not depend on how many cores a machine
        # has.
        with threadpool_limits(1), open_backend(reached) as backend:
            session = Session(recipe, _settle(recipe, seed, backend), backend, folder)
            facts = _begin(session, state)
            state, records = _play(session, state, on_round)
            return finish(session, state, records, facts)
    finally:
        if folder is not None:
            folder.close()


def _open_folder(
    path: Path, recipe: Mapping[str, Any], seed: int, resume: bool, wait_seconds: float
) -> RunFolder:
    until = time.monotonic() + wait_seconds
    while True:
        try:
            return RunFolder(path, recipe, seed, resume=resume)
        except RunFolderError as error:
            if "another process" not in error.what or time.monotonic() >= until:
                raise
        time.sleep(1.0)


def _settle(recipe: Mapping[str, Any], seed: int, backend: Backend) -> Setting:
    faults, runtime = Faults(**recipe["faults"]), backend.runtime
    if faults.hostile is not None:
        runtime = HostileRuntime(runtime, faults.hostile, seed, flipped=backend.owns_examples)
    unreliable = FaultyRuntime(runtime, faults, seed) if faults.any else runtime
    return settle(method_of(recipe), unreliable, seed)


def _facts(session: Session) -> Mapping[str, Any]:
    """What is special about this run: the backend's facts, and who is hostile."""
    hostile = Faults(**session.recipe["faults"]).hostile
    if hostile is None:
        return session.backend.facts
    size = session.setting.description.population.size
    return {**session.backend.facts, **hostile.facts(size, session.setting.seed)}


def _begin(session: Session, state: State | None) -> Mapping[str, Any]:
    """Write what the run is; returns it."""
    known = {**_facts(session), **_notes(session)}
    if session.folder is None:
        return known
    _check_layout(state, session.setting, session.folder)
    facts = session.folder.begin(known)
    session.keep_labels()
    return facts


def _notes(session: Session) -> dict[str, Any]:
    """What a recipe asks for and does not get."""
    asked = session.setting.method.clients_per_round
    size = session.setting.description.population.size
    if asked <= size:
        return {}
    what = f"run.clients_per_round = {asked}, but there are {size} clients: at most {size} train"
    return {"notes": [what]}


def _check_layout(state: State | None, setting: Setting, folder: RunFolder) -> None:
    if state is None:
        return
    size = stage_of(setting, state).description.layout.size
    if state.models.shape[1] != size:
        what = f"holds a model of {state.models.shape[1]} numbers, this one has {size}"
        raise RunFolderError(str(folder.path), what, "Resume with the same data and model")


def _check_anybody_known(state: State, records: Sequence[RoundRecord]) -> None:
    """Clients that do not answer the probe count as uniform; if none did, a run looks as if there
    were no skew. Asked once they have trained: if they cannot do that either, the round says why.
    """
    if state.signal is None or state.signal.source != "estimated":
        return
    clients = int(state.signal.known.sum())
    if 0 < clients == sum(why == PROBE_FAILED for why in records[0].failures.values()):
        what = f"none of {clients} clients answered the probe: no label mix is known"
        raise RunError("signal", what, "Use a recipe without a signal, or signal.use = 'histogram'")


def _play(
    session: Session, state: State | None, on_round: OnRound | None
) -> tuple[State, list[RoundRecord]]:
    """Every round, each on disk before the next one begins."""
    backend, folder = session.backend, session.folder
    records = [] if folder is None else read_rounds(folder.path)
    checkpoints = _Checkpoints(session)
    budget = budget_of(session.recipe)
    for reached, record in play_within(session.setting, state, records, budget):
        if record.round == 1:
            _check_anybody_known(reached, records)
        state = reached
        record = _completed(record, backend)
        records.append(record)
        if folder is not None:
            folder.append(record)
        checkpoints.save_if_due(state)
        backend.after_round(record.round)
        if on_round is not None:
            on_round(record)
    if state is None:
        raise RecipeError("run.rounds", "nothing to do", "Give at least one round")
    if len(records) == 1:
        _check_anybody_known(state, records)
    checkpoints.save(state)
    backend.rounds_over()
    return state, records


def _completed(record: RoundRecord, backend: Backend) -> RoundRecord:
    """The record of a round with what only the backend knows of it."""
    missing = backend.unscored()
    if backend.measured_joules is not None:
        record = replace(record, measured_joules=backend.measured_joules())
    return replace(record, unscored=missing.reasons, covers=missing.covers)


class _Checkpoints:
    """Saves the state now and then, and never the same one twice."""

    def __init__(self, session: Session) -> None:
        every_round = session.backend.save_every_round
        self._folder = session.folder
        self._seconds = 0.0 if every_round else session.recipe["run"]["checkpoint_seconds"]
        self._saved_at, self._saved_round = time.monotonic(), -1

    def save_if_due(self, state: State) -> None:
        """Round 0 is always saved: a private signal draws noise nobody can draw again."""
        if state.round == 0 or time.monotonic() - self._saved_at >= self._seconds:
            self.save(state)

    def save(self, state: State) -> None:
        """Save this state, unless it is the one that was saved last."""
        if self._folder is not None and state.round != self._saved_round:
            self._folder.save(state)
            self._saved_at, self._saved_round = time.monotonic(), state.round
