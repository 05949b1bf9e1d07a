"""CBA: what it learns by hand, how it chooses by brute force; it beats chance in balance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import rel_entr, softmax

from fedskew.errors import RecipeError
from fedskew.selection.cba import (
    CBA,
    composition,
    divergence,
    group_near_uniform,
    ucb_scores,
)
from fedskew.types import Feedback, Population, View


def view_of(clients, m, *, round=1, available=None):
    there = np.ones(clients, bool) if available is None else available
    never = np.zeros(clients)
    return View(
        round, m, Population(np.full(clients, 10)), there, np.full(clients, np.nan), never, never
    )


def feedback_of(clients, gradients, round=1):
    n = len(clients)
    nothing = np.zeros((n, 0), np.float32)
    return Feedback(
        round, clients, np.ones(n), np.ones(n), np.ones(n), np.ones(n), nothing, (2, 0), gradients
    )


def test_composition_is_a_softmax_of_scaled_norms():
    norms = np.random.default_rng(0).exponential(size=(6, 5)) * 100
    assert composition(norms, 3.0) == pytest.approx(
        softmax(3 * norms / norms.max(axis=1, keepdims=True), axis=1)
    )


def test_divergence_is_the_one_of_scipy():
    mixes = np.random.default_rng(0).dirichlet(np.ones(5), 6)
    assert divergence(mixes) == pytest.approx(rel_entr(mixes, 0.2).sum(axis=1))


def test_forgetting_by_hand():
    """Two visits: the first weighs rho, the second 1."""
    first, second = np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]])
    memory = CBA(rho=0.5).learn({"visits": np.zeros(3)}, feedback_of([1], first))
    assert memory["mixes"][1] == pytest.approx(composition(first, 1.0)[0])
    assert memory["mixes"][[0, 2]].tolist() == [[0.5, 0.5], [0.5, 0.5]]
    again = CBA(rho=0.5).learn(memory, feedback_of([1], second))
    expected = (0.5 * composition(first, 1.0) + composition(second, 1.0)) / 1.5
    assert again["mixes"][1] == pytest.approx(expected[0])
    assert again["visits"].tolist() == [0, 2, 0]
    assert memory["visits"].tolist() == [0, 1, 0]


def test_a_reaction_that_is_not_finite_teaches_nothing():
    memory = CBA().learn(
        {"visits": np.zeros(2)}, feedback_of([0, 1], np.array([[np.inf, 1.0], [1.0, 0.0]]))
    )
    assert memory["visits"].tolist() == [0, 1]
    assert CBA().learn(memory, feedback_of([], None)) is memory


def test_scores_by_hand():
    mixes = np.array([[0.5, 0.5], [0.9, 0.1], [0.8, 0.2]])
    kl = 0.9 * np.log(1.8) + 0.1 * np.log(0.2)
    found = ucb_scores(mixes, np.array([0, 4, 0]), 10, 2.0)
    assert found == pytest.approx([np.inf, 1 / kl + 2 * np.sqrt(3 * np.log(10) / 8), np.inf])


def test_the_group_is_built_by_brute_force():
    mixes = np.random.default_rng(2).dirichlet(np.full(4, 0.5), 12)
    chosen = [7]
    while len(chosen) < 5:
        rest = [i for i in range(12) if i not in chosen]
        chosen.append(
            min(rest, key=lambda i: rel_entr(mixes[[*chosen, i]].mean(axis=0), 0.25).sum())
        )
    assert group_near_uniform(mixes, 7, 5).tolist() == chosen


def test_one_unknown_client_is_tried_in_every_round():
    mixes = np.random.default_rng(0).dirichlet(np.ones(3), 8)
    visits = np.array([1, 1, 1, 0, 1, 1, 0, 1.0])
    memory = {"visits": visits, "weight": visits, "mixes": mixes}
    firsts = {
        int(CBA().choose(memory, view_of(8, 3, round=5), np.random.default_rng(seed))[0][0])
        for seed in range(20)
    }
    assert firsts == {3, 6}


def test_round_one_knows_nothing_and_is_random():
    often = np.zeros(10)
    for seed in range(600):
        ids, memory = CBA().choose({}, view_of(10, 3), np.random.default_rng(seed))
        often[ids] += 1
    assert list(memory) == ["visits"]
    assert (np.abs(often - 180) < 5 * np.sqrt(180 * 0.7)).all()


def test_it_learns_to_balance():
    """Clients of one class each, whose models react most to it: later groups hold every class."""
    classes, clients = 5, 20
    own = np.arange(clients) % classes
    memory, held = {}, []
    for round in range(1, 41):
        view = view_of(clients, classes, round=round)
        ids, memory = CBA().choose(memory, view, np.random.default_rng(round))
        held.append(len(set(own[ids].tolist())))
        memory = CBA().learn(memory, feedback_of(ids, 0.1 + np.eye(classes)[own[ids]], round))
    assert np.mean(held[:2]) < 4.5
    assert np.mean(held[25:]) == classes  # a random group of 5 holds 3.6 classes on average


@pytest.mark.parametrize("rho", [0.0, 1.5])
def test_forgetting_must_be_a_share(rho):
    with pytest.raises(RecipeError, match=r"selection\.rho"):
        CBA(rho=rho).choose({}, view_of(3, 1), np.random.default_rng(0))


def test_it_asks_for_the_auxiliary_set():
    assert CBA.uses_auxiliary
