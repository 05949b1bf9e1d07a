"""The balance solvers: every subset is seen, swaps leave no gain, greedy is what it says."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest

from fedskew.errors import RunError
from fedskew.labels import balance
from fedskew.labels.balance import (
    ENUMERATE_UP_TO,
    build_greedily,
    count_subsets,
    evaluate,
    improve_by_swaps,
    pose,
    solve,
    solve_exactly,
    subsets,
)


def problem_of(seed, clients=11, classes=4, *, plain=False):
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(classes, 0.3), clients)
    if plain:
        return pose(rows)
    target, weights, cost = (
        rng.dirichlet(np.ones(classes)),
        rng.uniform(1, 9, clients),
        rng.normal(size=clients) * 0.2,
    )
    return pose(rows, target=target, weights=weights, cost=cost)


def all_values(problem, m):
    return {
        ids: evaluate(problem, np.array([ids]))[0] for ids in combinations(range(problem.size), m)
    }


def test_the_objective_as_written_in_methods():
    rows, sizes, target = (
        np.array([[1.0, 0], [0.5, 0.5], [0, 1]]),
        np.array([10.0, 20, 70]),
        np.array([0.6, 0.4]),
    )
    cost = np.array([0.3, 0.1, 0.5])
    q = (10 * rows[0] + 70 * rows[2]) / 80
    by_hand = 2 * ((q[0] - 0.6) ** 2 + (q[1] - 0.4) ** 2) + (0.3 + 0.5) / 2
    assert evaluate(pose(rows, target=target, weights=sizes, cost=cost), np.array([[0, 2]]))[
        0
    ] == pytest.approx(by_hand)


@pytest.mark.parametrize(("size", "m"), [(1, 1), (5, 1), (5, 5), (6, 3), (9, 4), (300, 2), (7, 0)])
def test_subsets_are_those_of_itertools(size, m):
    table = subsets(size, m)
    assert table.T.tolist() == [list(ids) for ids in combinations(range(size), m)]
    assert table.dtype == (np.uint8 if size <= 256 else np.uint16)
    assert not table.flags.writeable
    assert subsets(size, m) is table


@pytest.mark.parametrize(("size", "m"), [(20, 5), (20, 15), (21, 10), (2000, 2), (5, 0), (1, 1)])
def test_counting_subsets(size, m):
    assert count_subsets(size, m) == comb(size, m) <= ENUMERATE_UP_TO


def test_counting_stops_early():
    assert count_subsets(1_000_000, 500_000) > ENUMERATE_UP_TO


@pytest.mark.parametrize("m", [1, 3, 5, 6, 8, 10])  # above half the table holds those who stay out
@pytest.mark.parametrize("seed", range(3))
def test_exact_is_the_best_of_all_subsets(m, seed):
    problem = problem_of(seed)
    values = all_values(problem, m)
    found = solve_exactly(problem, m, np.random.default_rng(0))
    assert values[tuple(found.tolist())] == pytest.approx(min(values.values()), abs=1e-12)


def test_exact_in_many_chunks(monkeypatch):
    problem = problem_of(5)
    whole = solve_exactly(problem, 4, np.random.default_rng(0))
    monkeypatch.setattr("fedskew.labels.balance.CHUNK", 7)
    assert solve_exactly(problem, 4, np.random.default_rng(0)).tolist() == whole.tolist()


def test_exact_ties_are_broken_evenly():
    # one of {0, 1} with one of {2, 3}
    problem, rng = pose(np.repeat(np.eye(2), 2, axis=0)), np.random.default_rng(0)
    drawn = [tuple(solve(problem, 2, rng).tolist()) for _ in range(800)]
    assert set(drawn) == {(0, 2), (0, 3), (1, 2), (1, 3)}
    assert all(abs(drawn.count(ids) - 200) < 60 for ids in set(drawn))  # 5 standard deviations


@pytest.mark.parametrize("seed", range(10))
def test_no_exchange_betters_a_swapped_set(seed):
    problem = problem_of(seed, plain=seed % 2 == 0)
    rng = np.random.default_rng(seed)
    found = solve(problem, 4, rng, solver="swap")
    here = evaluate(problem, found[None])[0]
    outside = np.setdiff1d(np.arange(problem.size), found)
    for place in range(4):
        for newcomer in outside:
            other = found.copy()
            other[place] = newcomer
            assert evaluate(problem, other[None])[0] >= here - 1e-8


def test_swaps_keep_every_set_valid_and_never_worse():
    problem, rng = problem_of(3, clients=40, classes=10), np.random.default_rng(1)
    starts = np.stack([rng.choice(40, 12, replace=False) for _ in range(7)])
    before = starts.copy()
    after = improve_by_swaps(problem, starts)
    assert np.array_equal(starts, before)
    assert all(len(set(ids)) == 12 for ids in after.tolist())
    assert (evaluate(problem, after) <= evaluate(problem, starts) + 1e-12).all()


def test_greedy_takes_the_best_next_client():
    problem = problem_of(4)
    chosen = []
    for _ in range(5):
        rest = [i for i in range(problem.size) if i not in chosen]
        chosen.append(min(rest, key=lambda i: evaluate(problem, np.array([[*chosen, i]]))[0]))
    assert build_greedily(problem, 5).tolist() == chosen


@pytest.mark.parametrize("solver", ["auto", "swap", "enumerate"])
def test_everyone_or_nobody(solver):
    problem, rng = problem_of(0, clients=4), np.random.default_rng(0)
    assert solve(problem, 9, rng, solver=solver).tolist() == [0, 1, 2, 3]
    assert solve(problem, 4, rng, solver=solver).tolist() == [0, 1, 2, 3]
    assert solve(problem, 0, rng, solver=solver).tolist() == []
    assert solve(pose(np.empty((0, 3))), 2, rng, solver=solver).tolist() == []


def test_too_many_subsets_to_enumerate():
    with pytest.raises(
        RunError,
        match=r"selection bacsa: 50 of 1000 clients have more than 2,000,000 subsets\. Use solver",
    ):
        solve(
            problem_of(0, clients=1000),
            50,
            np.random.default_rng(0),
            solver="enumerate",
            where="selection bacsa",
        )


def test_swaps_at_a_thousand_clients_beat_random_sets_by_far():
    problem, rng = problem_of(0, clients=1000, classes=10, plain=True), np.random.default_rng(0)
    found = evaluate(problem, solve(problem, 50, rng)[None])[0]
    drawn = evaluate(
        problem, np.stack([rng.choice(1000, 50, replace=False) for _ in range(200)])
    ).min()
    assert found < drawn / 100


def test_ties_of_large_values_are_ties_too():
    # the same six sets, a million further from 0: rounding there is far above 1e-12
    problem = pose(np.repeat(np.eye(2), 2, axis=0), cost=1e6 / 3 + np.array([0, 5e-11, 0, 0]))
    rng = np.random.default_rng(0)
    assert {tuple(solve_exactly(problem, 2, rng).tolist()) for _ in range(200)} == {
        (0, 2), (0, 3), (1, 2), (1, 3),
    }  # fmt: skip


def test_after_every_pass_the_worse_half_stops(monkeypatch):
    moving = []

    def passed(problem, sets):
        moving.append(len(sets))
        return sets, np.arange(len(sets), dtype=float), np.ones(len(sets), np.bool_)

    monkeypatch.setattr(balance, "_pass", passed)
    improve_by_swaps(problem_of(0), np.zeros((9, 2), np.int64))
    assert moving[:5] == [9, 5, 3, 2, 1]


@pytest.mark.parametrize("seed", range(10))
def test_from_one_start_no_exchange_is_left_that_helps(seed):
    """Weights differ: what a newcomer weighs changes the whole set."""
    problem = problem_of(seed, clients=15)
    start = np.random.default_rng(seed).choice(15, (1, 4), replace=False)
    found = improve_by_swaps(problem, start)[0]
    here = evaluate(problem, found[None])[0]
    for place in range(4):
        for newcomer in np.setdiff1d(np.arange(15), found):
            other = found.copy()
            other[place] = newcomer
            assert evaluate(problem, other[None])[0] >= here - 1e-8
