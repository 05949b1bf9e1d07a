"""DivFL: lazy greedy against plain greedy, distances against scipy, who is asked for updates,
and what is refreshed.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from fedskew.errors import RecipeError, RunError
from fedskew.loop.federation import run, settle
from fedskew.recipe import method_of, resolve
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.selection.divfl import DivFL, _greedy, distances_to
from fedskew.types import Answer, AskUpdates, Feedback, Population, View


def plain_greedy(between, m):
    """One after another the row that leaves the least sum of column minima; ties to the lower."""
    chosen, nearest = [], np.full(between.shape[1], np.inf)
    for _ in range(m):
        left = [i for i in range(len(between)) if i not in chosen]
        sums = [np.minimum(nearest, between[i]).sum() for i in left]
        chosen.append(left[int(np.argmin(sums))])
        nearest = np.minimum(nearest, between[chosen[-1]])
    return chosen


def objective(between, chosen):
    return between[list(chosen)].min(axis=0).sum()


def view_of(clients, m=2, *, available=None, answers=(), round=1):
    return View(
        round=round,
        budget=m,
        population=Population(np.full(clients, 10)),
        available=np.ones(clients, bool) if available is None else available,
        loss=np.full(clients, np.nan),
        times_selected=np.zeros(clients),
        last_selected=np.zeros(clients),
        answers=answers,
    )


def choose(updates, m=2, *, memory=None, available=None, seed=0, **options):
    """(ids, memory, clients asked) with these updates (K, F) for whoever is asked."""
    view = view_of(len(updates), m, available=available)
    chosen, memory = DivFL(**options).choose(memory or {}, view, np.random.default_rng([seed, 0]))
    if not isinstance(chosen, AskUpdates):
        return chosen.tolist(), memory, []
    view = view_of(
        len(updates), m, available=available, answers=(Answer(chosen, updates[chosen.clients]),)
    )
    ids, memory = DivFL(**options).choose(memory, view, np.random.default_rng([seed, 1]))
    return ids.tolist(), memory, chosen.clients.tolist()


def feedback_of(clients, delta):
    n = len(clients)
    return Feedback(
        1, np.array(clients), np.ones(n), np.ones(n), np.ones(n), np.ones(n), delta, (0, 0)
    )


# ---------------------------------------------------------------- the arithmetic


@pytest.mark.parametrize("features", [1, 7, 5000])  # the last: two blocks of columns
def test_distances_are_those_of_scipy(features):
    points = np.random.default_rng(0).normal(size=(9, features)).astype(np.float32)
    rows = np.array([4, 0, 7])
    assert np.allclose(distances_to(points, rows), cdist(points[rows], points), atol=1e-12)


def test_equal_updates_are_at_distance_zero():
    points = np.repeat(np.random.default_rng(0).normal(size=(2, 50)), 3, axis=0).astype(np.float32)
    assert (distances_to(points, np.arange(6)) == 0).sum() == 2 * 9


@pytest.mark.parametrize("at_once", [2, 32])
@pytest.mark.parametrize("seed", range(30))
def test_lazy_greedy_is_plain_greedy(seed, at_once, monkeypatch):
    """Small whole numbers: exact sums, common ties, also between rows looked at in turn."""
    monkeypatch.setitem(_greedy.__globals__, "AT_ONCE", at_once)
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 3 if seed % 2 else 50, (int(rng.integers(1, 90)), 2))
    between = np.abs(points[:, None] - points).sum(axis=2).astype(np.float32)
    m = int(rng.integers(1, len(points) + 1))
    assert _greedy(between, m, len(points), rng).tolist() == plain_greedy(between, m)


@pytest.mark.parametrize("seed", range(10))
def test_greedy_is_near_the_best_of_all_sets(seed):
    """For gains from any start the bound is 1 - 1/e; on 10 clients in the plane greedy stays
    within a third of the best.
    """
    points = np.random.default_rng(seed).normal(size=(10, 2)).astype(np.float32)
    between = distances_to(points, np.arange(10)).astype(np.float32)
    best = min(objective(between, s) for s in itertools.combinations(range(10), 3))
    found = objective(between, _greedy(between, 3, 10, np.random.default_rng(0)))
    assert best <= found <= best * 4 / 3


def test_stochastic_greedy_is_nearly_as_good_and_depends_on_the_draw():
    points = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    between = distances_to(points, np.arange(200)).astype(np.float32)
    full = objective(between, _greedy(between, 10, 200, np.random.default_rng(0)))
    some = [_greedy(between, 10, 20, np.random.default_rng(seed)).tolist() for seed in range(10)]
    values = [objective(between, chosen) for chosen in some]
    drawn = [
        objective(between, np.random.default_rng(seed).permutation(200)[:10]) for seed in range(10)
    ]
    assert len({tuple(chosen) for chosen in some}) > 1
    assert all(len(set(chosen)) == 10 for chosen in some)
    assert full <= np.mean(values) < np.mean(drawn)


def plain_stochastic(between, m, width, rng):
    """The same, each time among ``width`` random rows that are left."""
    chosen = []
    for _ in range(m):
        left = [i for i in range(len(between)) if i not in chosen]
        rows = sorted(rng.choice(left, min(width, len(left)), replace=False).tolist())
        chosen.append(min(rows, key=lambda i: objective(between, [*chosen, i])))
    return chosen


@pytest.mark.parametrize("seed", range(10))
def test_stochastic_greedy_is_plain_greedy_among_those_drawn(seed):
    points = np.random.default_rng(seed).integers(0, 9, (30, 2))
    between = np.abs(points[:, None] - points).sum(axis=2).astype(np.float32)
    for m, width in ((6, 3), (10, 7), (30, 29)):
        found = _greedy(between, m, width, np.random.default_rng(seed))
        assert found.tolist() == plain_stochastic(between, m, width, np.random.default_rng(seed))


@pytest.mark.parametrize(("m", "subsample", "width"), [(4, 0.01, 4), (4, 0.4, 8), (2, 0.4, 8)])
def test_the_stochastic_solver_looks_at_a_share_of_all_but_never_at_fewer_than_m(
    m, subsample, width, monkeypatch
):
    """max(m, 0.1 K) candidates in docs/methods.md 4.13."""
    widths = []

    def spy(between, m, width, rng):
        widths.append(width)
        return _greedy(between, m, width, rng)

    monkeypatch.setitem(DivFL._represent.__globals__, "_greedy", spy)
    updates = np.random.default_rng(0).normal(size=(20, 3))
    chosen, _, _ = choose(updates, m, solver="stochastic", subsample=subsample)
    assert len(set(chosen)) == m
    assert widths == [width]


# ---------------------------------------------------------------- the rule


@pytest.mark.parametrize("solver", ["lazy", "stochastic"])
def test_one_client_of_each_group(solver):
    """Four groups of five: uniform selection meets all of them in 13 % of the draws."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        groups = rng.permutation(np.repeat(np.arange(4), 5))
        updates = 10 * np.eye(4)[groups] + rng.normal(size=(20, 4))
        chosen, _, _ = choose(updates, 4, solver=solver, subsample=1.0, seed=seed)
        assert sorted(groups[chosen]) == [0, 1, 2, 3]


def test_the_same_updates_choose_the_lowest_numbers():
    assert choose(np.ones((6, 3)), 4)[0] == [0, 1, 2, 3]


def test_everybody_is_asked_once_and_strangers_when_they_come():
    updates = np.random.default_rng(0).normal(size=(6, 3))
    away = np.array([True, True, True, True, False, False])
    _, memory, asked = choose(updates, available=away)
    assert asked == [0, 1, 2, 3]
    _, memory, asked = choose(updates, available=away, memory=memory)
    assert asked == []
    _, memory, asked = choose(updates, memory=memory)
    assert asked == [4, 5]
    assert memory["known"].all()
    assert np.allclose(memory["distances"], cdist(updates, updates), atol=1e-5)


def test_who_fails_is_not_asked_again_but_may_fill_up():
    updates = np.random.default_rng(0).normal(size=(5, 3))
    updates[[1, 3], 2] = np.nan
    ids, memory, _ = choose(updates, 2)
    assert not {1, 3} & set(ids)
    ids, memory, asked = choose(updates, 4, memory=memory)
    assert asked == []
    assert {0, 2, 4} < set(ids)
    learned = DivFL().learn(memory, feedback_of([1], np.ones((1, 3))))
    assert learned["known"].tolist() == [True, True, True, False, True]
    assert not memory["known"][1]


def test_nobody_answers():
    ids, memory, asked = choose(np.full((5, 3), np.nan), 3)
    assert len(asked) == 5
    assert len(set(ids)) == 3
    learned = DivFL().learn(memory, feedback_of(ids, np.eye(3)))
    assert learned["updates"][ids].tolist() == np.eye(3).tolist()


def test_training_refreshes_the_distances_of_who_trained():
    rng = np.random.default_rng(0)
    updates = rng.normal(size=(8, 4)).astype(np.float32)
    _, memory, _ = choose(updates)
    fresh = rng.normal(size=(2, 4)).astype(np.float32)
    learned = DivFL(layer="all", solver="lazy", subsample=0.1).learn(
        memory, feedback_of([5, 2], fresh)
    )
    updates[[5, 2]] = fresh
    assert np.allclose(learned["distances"], cdist(updates, updates), atol=1e-5)
    assert np.array_equal(learned["distances"], learned["distances"].T)
    assert not np.allclose(memory["distances"], learned["distances"])


def test_clients_that_are_away_are_stood_for_but_not_chosen():
    """Three clients on a line at 0, 1 and 10; the last is away, yet the nearer one to it is
    better for m = 1.
    """
    updates = np.array([[0.0], [1.0], [10.0]])
    _, memory, _ = choose(updates, 1)
    ids, _, _ = choose(updates, 1, available=np.array([True, True, False]), memory=memory)
    assert ids == [1]


def test_layers_are_passed_on_and_not_mixed():
    chosen, memory = DivFL(layer="last").choose({}, view_of(3), np.random.default_rng(0))
    assert chosen.layer == "last"
    _, memory, _ = choose(np.eye(3))
    with pytest.raises(
        RunError, match=r"updates of 2 numbers after some of 3.*one selection\.layer"
    ):
        DivFL().learn(memory, feedback_of([0], np.ones((1, 2))))


def test_limits():
    with pytest.raises(RunError, match="10001 clients"):
        DivFL().choose({}, view_of(10_001), np.random.default_rng(0))
    with pytest.raises(RecipeError, match="subsample"):
        DivFL(subsample=0.0).choose({}, view_of(3), np.random.default_rng(0))


def test_in_the_loop_two_kinds_of_clients_are_both_met_and_updates_are_charged():
    def script(client, round, model):
        return Reply(
            model + np.float32(1 if client % 2 else -1) + np.float32(client) / 100, 0.5, 1.0, 1, 10
        )

    recipe = resolve(
        {
            "selection": {"use": "fedskew.selection.divfl:DivFL"},
            "run": {"rounds": 5, "clients_per_round": 2},
        }
    )
    setting = settle(method_of(recipe), ScriptedRuntime(np.full((10, 2), 5), script=script), 0)
    _, *records = [record for _, record in run(setting)]
    for record in records:
        assert sorted(chain.clients[0] % 2 for chain in record.chains) == [0, 1]
    size = setting.description.layout.bytes
    ledger = [{(t.direction, t.kind): t.bytes for t in record.transfers} for record in records]
    assert ledger[0] == {
        ("down", "probe"): 10 * size,
        ("up", "gradient"): 10 * size,
        ("up", "model"): 2 * size,
    }
    assert ledger[1] == {("down", "model"): 2 * size, ("up", "model"): 2 * size}
