"""Greedy balance: the same set for ever, unless several sets are equally good."""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.errors import RunError
from fedskew.selection.greedy_balance import greedy_balance
from fedskew.types import Population, Signal, View, bind


def view_of(rows, m, *, sizes=None, round=1, times=None):
    clients = len(rows)
    sizes = np.full(clients, 10) if sizes is None else np.asarray(sizes)
    times = np.zeros(clients) if times is None else times
    everyone, unknown = np.ones(clients, bool), np.full(clients, np.nan)
    return View(
        round,
        m,
        Population(sizes),
        everyone,
        unknown,
        times,
        times,
        signal=Signal(rows, sizes, "estimated"),
    )


def test_use_does_not_matter():
    rows = np.random.default_rng(0).dirichlet(np.full(5, 0.3), 12)
    first = greedy_balance(view_of(rows, 4), np.random.default_rng(0))
    for round in range(2, 12):
        view = view_of(
            rows, 4, round=round, times=np.where(np.isin(np.arange(12), first), round - 1, 0)
        )
        assert greedy_balance(view, np.random.default_rng(round)).tolist() == first.tolist()


def test_perfect_sets_take_turns_at_random():
    view = view_of(np.eye(2)[[0, 0, 1]], 2)
    drawn = {
        tuple(greedy_balance(view, np.random.default_rng(seed)).tolist()) for seed in range(30)
    }
    assert drawn == {(0, 2), (1, 2)}


def test_swaps_give_the_same_set_whatever_the_stream():
    view = view_of(np.random.default_rng(0).dirichlet(np.full(10, 0.3), 400), 20)
    sets = {tuple(greedy_balance(view, np.random.default_rng(seed)).tolist()) for seed in range(5)}
    assert len(sets) == 1


def test_weights_and_target():
    """Clients hold (30, 0), (0, 10), (0.5, 0.5) and (27, 3) examples of two classes."""
    rows, sizes = np.array([[1, 0], [0, 1], [0.5, 0.5], [0.9, 0.1]]), [30, 10, 1, 30]
    view = view_of(rows, 2, sizes=sizes)
    assert greedy_balance(view, np.random.default_rng(0)).tolist() == [0, 1]
    # by examples 0 and 1 make (3/4, 1/4), but 1 and 3 make (0.675, 0.325)
    assert greedy_balance(view, np.random.default_rng(0), weights="examples").tolist() == [1, 3]
    # all together hold 0.81 of class 0; 0 and 2 make 0.75
    assert greedy_balance(view, np.random.default_rng(0), target="global").tolist() == [0, 2]


def test_it_needs_a_signal():
    view = view_of(np.eye(3), 2)
    bare = View(
        1, 2, view.population, view.available, view.loss, view.times_selected, view.last_selected
    )
    with pytest.raises(RunError, match="selection greedy_balance: needs label proportions"):
        greedy_balance(bare, np.random.default_rng(0))
    assert set(bind("selection", greedy_balance, {}).needs()) == {"signal"}
