"""Everyone in turn."""

from __future__ import annotations

import numpy as np
from making_views import view_of

from fedskew.aggregation import AGGREGATIONS
from fedskew.loop.federation import Method, named, run, settle
from fedskew.procedure import PROCEDURES
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.selection.round_robin import RoundRobin


def turns(view_at, rounds):
    memory, chosen = {}, []
    for t in range(rounds):
        ids, memory = RoundRobin().choose(memory, view_at(t), np.random.default_rng(0))
        chosen.append(ids.tolist())
    return chosen


def test_ids_in_order_wrapping_around():
    assert turns(lambda t: view_of(5, 2), 5) == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]


def test_a_client_that_is_away_loses_its_turn_and_does_not_catch_up():
    away = np.array([True, True, False, True, True])
    assert turns(lambda t: view_of(5, 2, available=away if t == 1 else None), 4) == [
        [0, 1],
        [3, 4],
        [0, 1],
        [2, 3],
    ]


def test_nobody_there_keeps_the_turn():
    seen = turns(lambda t: view_of(3, 2, available=np.zeros(3, bool) if t == 1 else None), 3)
    assert seen == [[0, 1], [], [2, 0]]


def test_a_budget_above_the_number_of_clients_takes_everyone_once():
    assert turns(lambda t: view_of(3, 7), 2) == [[0, 1, 2], [0, 1, 2]]


def test_over_a_run_counts_differ_by_one_at_most():
    method = Method(
        selection=named("selection", "round_robin", RoundRobin),
        procedure=named("procedure", "parallel", PROCEDURES["parallel"]),
        aggregation=named("aggregation", "mean", AGGREGATIONS["mean"]),
        rounds=7,
        clients_per_round=3,
    )
    *_, (state, _) = run(settle(method, ScriptedRuntime(np.full((8, 2), 3)), seed=0))
    # 21 places among 8 clients; uniform selection spreads wider
    assert np.ptp(state.times_selected) == 1
    assert state.memory["selection"] == {"next": 5}
