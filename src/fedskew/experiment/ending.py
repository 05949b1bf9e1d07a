"""The end of a run: its model and its summary, its clients tested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedskew.experiment.backend import Backend, Session
from fedskew.experiment.run import Run
from fedskew.loop.finishing import stage_of
from fedskew.loop.method import Setting
from fedskew.loop.serving import served
from fedskew.loop.training import score_clients
from fedskew.loop.trust.book import open_book
from fedskew.records import PENDING
from fedskew.types import Ints, RoundRecord, ScoreOrder, State


def finish(
    session: Session, state: State, records: list[RoundRecord], facts: Mapping[str, Any]
) -> Run:
    """Keep the final model and the summary, test the clients and keep both once more: whatever
    becomes of the tests, the run has its model.
    """
    setting, backend = stage_of(session.setting, state), session.backend
    columns = client_columns(setting, state)
    tested = backend.clients_have_tests()

    def closed(columns: dict[str, list[Any]], **more: Any) -> Run:
        return _close(session, setting, state, records, facts, columns, more)

    if tested and backend.save_every_round:
        closed(columns, **{PENDING: "tests of the final models at their clients"})
    if tested:
        columns |= score_columns(setting, state, backend)
    backend.after_round(state.round)
    return closed(columns)


def _close(
    session: Session,
    setting: Setting,
    state: State,
    records: list[RoundRecord],
    facts: Mapping[str, Any],
    columns: dict[str, list[Any]],
    more: Mapping[str, Any],
) -> Run:
    """The run as it is known now, written if it has a folder."""
    folder, layout = session.folder, setting.description.layout
    run = Run(
        recipe=session.recipe,
        seed=setting.seed,
        rounds=records,
        clients=columns,
        folder=None if folder is None else folder.path,
        facts=facts,
        labels=session.keep_labels(),
        final_model=(served(state), layout),
        frozen=setting.runtime.frozen(),
    )
    if folder is not None:
        folder.finish(served(state), layout, columns, {**run.summary(), **more}, run.frozen)
    return run


def client_columns(setting: Setting, state: State) -> dict[str, list[Any]]:
    """What is known of each client at the end, as columns."""
    size = len(state.loss)
    columns: dict[str, list[Any]] = {
        "client": list(range(size)),
        # asked again: clients may have joined since the run began
        "examples": setting.runtime.describe().population.num_examples.tolist(),
        "times_selected": state.times_selected.tolist(),
        "last_loss": state.loss.tolist(),
        "slot": _home(state).tolist(),
    }
    if "trust" in state.memory:
        columns["trust"] = open_book(state).trust.tolist()
    if state.clustering is not None:
        columns["cluster"] = state.clustering.labels.tolist()
    return columns


def score_columns(setting: Setting, state: State, backend: Backend) -> dict[str, list[Any]]:
    """Results of the final models at their clients; nan for a client that is not reached, and why
    it was not.
    """
    size = len(state.loss)
    order = ScoreOrder(range(size), served(state), _home(state), "test")
    scores = score_clients(setting, state, order)
    missing = backend.unscored().reasons
    columns: dict[str, list[Any]] = {
        "test_examples": scores.num_examples.tolist(),
        "accuracy": scores.accuracy.tolist(),
        "test_loss": scores.loss.tolist(),
    }
    if missing:
        columns["untested"] = [missing.get(client, "") for client in range(size)]
    return columns


def _home(state: State) -> Ints:
    """The model each client has."""
    return np.zeros(len(state.loss), np.int64) if state.home is None else np.asarray(state.home)
