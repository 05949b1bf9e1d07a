"""Clients that join after the first round, without a fleet: a runtime describes one more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedskew.loop.federation import play_round, prepare, settle
from fedskew.loop.late_clients import admit
from fedskew.loop.method import Stage
from fedskew.loop.nearest_cluster import nearest_clusters
from fedskew.recipe import method_of, resolve
from fedskew.runtime.faults import Faults, FaultyRuntime
from fedskew.runtime.metered import MeteredRuntime
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import ReleasedCounts, Signal

# two kinds of clients; the last joins late
COUNTS = np.array([[9, 1], [8, 2], [9, 0], [1, 9], [0, 9], [2, 8], [1, 8]])
EARLY = np.where(np.arange(7)[:, None] == 6, 0, COUNTS)


def prepared(
    clustering: str = "kmedoids",
    distance: str = "hellinger",
    signal: dict[str, object] | None = None,
):
    stages = {
        "signal": signal or {"use": "histogram"},
        "distance": {"use": distance},
        "clustering": {"use": clustering},
    }
    method = method_of(resolve({**stages, "run": {"clients_per_round": 7, "rounds": 2}}))
    setting = settle(method, ScriptedRuntime(EARLY), seed=0)
    return replace(setting, runtime=ScriptedRuntime(COUNTS)), prepare(setting)[0]


@pytest.mark.parametrize("clustering", ["kmedoids", "kmeans", "optics"])
def test_a_late_client_goes_to_the_cluster_of_its_like(clustering):
    setting, state = prepared(clustering)
    assert state.clustering.labels.tolist() == [0, 0, 0, 1, 1, 1, -1]
    state, record = play_round(setting, state)
    assert state.clustering.labels.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert sorted(record.loss) == list(range(7))
    np.testing.assert_allclose(state.signal.rows[6], [1 / 9, 8 / 9])


def test_its_histogram_is_charged_once():
    setting, state = prepared()
    state, first = play_round(setting, state)
    _, second = play_round(setting, state)
    histograms = [
        [t.bytes for t in record.transfers if t.kind == "histogram"] for record in (first, second)
    ]
    assert histograms == [[2 * 4], []]


def test_nothing_changes_where_nobody_joins():
    setting = settle(
        method_of(resolve({"signal": {"use": "histogram"}})), ScriptedRuntime(EARLY), seed=0
    )
    state, _ = prepare(setting)
    same, kept, effort = admit(setting, state)
    assert same is setting
    assert kept is state
    assert effort.transfers == ()
    assert effort.cost.seconds == 0.0


class Releasing(ScriptedRuntime):
    """Clients add the noise themselves."""

    def __init__(self, counts, asked):
        super().__init__(counts)
        self.asked = asked

    def label_counts(self):
        raise AssertionError("raw counts must not be asked for")

    def released_counts(self, clients):
        self.asked.append(list(clients))
        known = np.isin(np.arange(7), clients)
        return ReleasedCounts(known, np.where(known[:, None], [[3.0, -1.0]], 0))


class Still:
    """A meter that never moves."""

    name = "still"

    def start(self):
        pass

    def stop(self, watts):
        return 0.0


@pytest.mark.parametrize(
    "around",
    [
        lambda runtime: runtime,
        lambda runtime: FaultyRuntime(runtime, Faults(dropout=0.1), 0),
        lambda runtime: MeteredRuntime(runtime, Still()),
    ],
    ids=["itself", "faulty", "metered"],
)
def test_a_runtime_whose_clients_add_the_noise_is_never_asked_for_counts(around):
    """The loop takes released counts as they are: clipped and normalised, no second noise."""
    asked: list[list[int]] = []
    method = method_of(resolve({"signal": {"use": "private", "epsilon": 2.0}}))
    setting = settle(method, around(Releasing(EARLY, asked)), seed=0)
    state, record = prepare(setting)
    assert state.signal.source == "private"
    assert state.signal.epsilon == 2.0
    assert state.signal.rows[:6].tolist() == [[1.0, 0.0]] * 6
    assert [t.bytes for t in record.transfers] == [6 * 2 * 4]
    _, state, _ = admit(replace(setting, runtime=around(Releasing(COUNTS, asked))), state)
    assert asked == [[0, 1, 2, 3, 4, 5], [6]]
    assert isinstance(state.signal, Signal)
    assert state.signal.known.all()


def test_nobody_new_needs_no_cluster():
    nobody = Signal(np.empty((0, 2)), np.empty(0, np.int64), "disclosed")
    found = nearest_clusters(nobody, nobody, None, Stage("euclidean", None))
    assert found.shape == (0,)
    assert found.dtype == np.int64
