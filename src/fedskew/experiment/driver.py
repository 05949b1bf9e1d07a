"""Plays one run, keeps its records, goes on with it after a kill, and finishes it.

The only driver: :mod:`~fedskew.experiment.local` and :mod:`~fedskew.experiment.fleet` build a
:class:`Backend` and leave the rest to :func:`drive`, so that one recipe leaves one kind of folder
wherever it is played.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedskew.errors import RecipeError, RunFolderError
from fedskew.experiment.run import Run
from fedskew.loop.federation import run as play
from fedskew.loop.federation import settle
from fedskew.loop.finishing import stage_of
from fedskew.loop.method import Setting
from fedskew.loop.training import score_clients
from fedskew.loop.trust.book import open_book
from fedskew.recipe import method_of
from fedskew.records import Labels, RunFolder, read_rounds
from fedskew.runtime.faults import Faults, FaultyRuntime
from fedskew.runtime.hostile import HostileRuntime
from fedskew.types import RoundRecord, Runtime, ScoreOrder, State

OnRound = Callable[[RoundRecord], None]


@dataclass(frozen=True)
class Backend:
    """Where a run is played: clients behind a runtime, and what is special about them."""

    runtime: Runtime
    clients_have_tests: Callable[[], bool]
    # what may be kept of the clients' labels, as far as it is known by now
    labels: Callable[[], Labels | None]
    facts: Mapping[str, Any] = field(default_factory=dict)  # about this run, for run.json
    # joules measured since it was last asked; None: energy is modelled
    measured_joules: Callable[[], float] | None = None
    # whether it has given label_flip's clients their labels (only who owns the examples can)
    owns_examples: bool = False
    save_every_round: bool = False  # or as often as the recipe's run.checkpoint_seconds says
    # called when a round is on disk, and once more when the clients have been tested
    after_round: Callable[[int], None] = lambda round: None


# the last round that is on disk (-1: none) -> the backend, open as long as the run goes on
OpenBackend = Callable[[int], AbstractContextManager[Backend]]


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
            session = _Session(recipe, _settle(recipe, seed, backend), backend, folder)
            facts = _begin(session, state)
            state, records = _play(session, state, on_round)
            return _finish(session, state, records, facts)
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


@dataclass(frozen=True)
class _Session:
    """One run on its way."""

    recipe: Mapping[str, Any]
    setting: Setting
    backend: Backend
    folder: RunFolder | None


def _settle(recipe: Mapping[str, Any], seed: int, backend: Backend) -> Setting:
    faults, runtime = Faults(**recipe["faults"]), backend.runtime
    if faults.hostile is not None:
        runtime = HostileRuntime(runtime, faults.hostile, seed, flipped=backend.owns_examples)
    unreliable = FaultyRuntime(runtime, faults, seed) if faults.any else runtime
    return settle(method_of(recipe), unreliable, seed)


def _facts(session: _Session) -> Mapping[str, Any]:
    """What is special about this run: the backend's facts, and who is hostile."""
    hostile = Faults(**session.recipe["faults"]).hostile
    if hostile is None:
        return session.backend.facts
    size = session.setting.description.population.size
    return {**session.backend.facts, **hostile.facts(size, session.setting.seed)}


def _begin(session: _Session, state: State | None) -> Mapping[str, Any]:
    """Write what the run is; returns it."""
    known = {**_facts(session), **_notes(session)}
    if session.folder is None:
        return known
    _check_layout(state, session.setting, session.folder)
    facts = session.folder.begin(known)
    _keep_labels(session)
    return facts


def _notes(session: _Session) -> dict[str, Any]:
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


def _keep_labels(session: _Session) -> Labels | None:
    labels = session.backend.labels()
    if labels is None or session.folder is None:
        return labels
    return session.folder.keep_labels(labels)


def _play(
    session: _Session, state: State | None, on_round: OnRound | None
) -> tuple[State, list[RoundRecord]]:
    """Every round, each on disk before the next one begins."""
    backend, folder = session.backend, session.folder
    records = [] if folder is None else read_rounds(folder.path)
    checkpoints = _Checkpoints(session)
    for reached, record in play(session.setting, state):
        state = reached
        if backend.measured_joules is not None:
            record = replace(record, measured_joules=backend.measured_joules())
        records.append(record)
        if folder is not None:
            folder.append(record)
        checkpoints.save_if_due(state)
        backend.after_round(record.round)
        if on_round is not None:
            on_round(record)
    if state is None:
        raise RecipeError("run.rounds", "nothing to do", "Give at least one round")
    checkpoints.save(state)
    return state, records


class _Checkpoints:
    """Saves the state now and then, and never the same one twice."""

    def __init__(self, session: _Session) -> None:
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


def _finish(
    session: _Session, state: State, records: list[RoundRecord], facts: Mapping[str, Any]
) -> Run:
    """Test the clients, keep the final model, the clients' results and the summary."""
    setting, folder = stage_of(session.setting, state), session.folder
    columns = client_columns(setting, state, session.backend.clients_have_tests())
    session.backend.after_round(state.round)
    layout = setting.description.layout
    run = Run(
        recipe=session.recipe,
        seed=setting.seed,
        rounds=records,
        clients=columns,
        folder=None if folder is None else folder.path,
        facts=facts,
        labels=_keep_labels(session),
        final_model=(state.models, layout),
        frozen=setting.runtime.frozen(),
    )
    if folder is not None:
        folder.finish(state.models, layout, columns, run.summary(), run.frozen)
    return run


def client_columns(setting: Setting, state: State, tested: bool) -> dict[str, list[Any]]:
    """Per-client results of the final models, as columns; nan for a client that is not reached."""
    size = len(state.loss)
    home = np.zeros(size, np.int64) if state.home is None else np.asarray(state.home)
    columns: dict[str, list[Any]] = {
        "client": list(range(size)),
        # asked again: clients may have joined since the run began
        "examples": setting.runtime.describe().population.num_examples.tolist(),
        "times_selected": state.times_selected.tolist(),
        "last_loss": state.loss.tolist(),
        "slot": home.tolist(),
    }
    if "trust" in state.memory:
        columns["trust"] = open_book(state).trust.tolist()
    if state.clustering is not None:
        columns["cluster"] = state.clustering.labels.tolist()
    if tested:
        order = ScoreOrder(range(size), state.models, home, "test")
        scores = score_clients(setting, state, order)
        columns |= {
            "test_examples": scores.num_examples.tolist(),
            "accuracy": scores.accuracy.tolist(),
            "test_loss": scores.loss.tolist(),
        }
    return columns
