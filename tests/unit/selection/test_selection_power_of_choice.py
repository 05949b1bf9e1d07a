"""Power-of-Choice: candidates by size, the largest losses among them, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from making_views import NAN, often, play, view_of

from fedskew.errors import RecipeError
from fedskew.selection.power_of_choice import draw_candidates, power_of_choice
from fedskew.types import AskLoss, bind


def test_the_largest_losses_of_the_candidates_largest_first():
    fresh = np.array([0.1, 0.9, 0.5, 0.7, 0.9, 0.2])
    asked = []
    chosen = play(power_of_choice, view_of(6, 2), 4, fresh=fresh, d=4, asked=asked)
    candidates = asked[0].clients
    assert len(candidates) == 4
    assert chosen == sorted(candidates.tolist(), key=lambda i: (-fresh[i], i))[:2]


def test_ties_go_to_the_lower_id():
    assert play(power_of_choice, view_of(5, 3), fresh=np.full(5, 0.1), d=5) == [0, 1, 2]


def test_two_m_candidates_by_default():
    asked = []
    play(power_of_choice, view_of(30, 4), fresh=np.zeros(30), asked=asked)
    assert len(asked[0].clients) == 8
    assert asked[0].max_examples == 0


def test_batch_asks_for_a_few_examples_only():
    asked = []
    play(
        power_of_choice, view_of(9, 2), fresh=np.zeros(9), asked=asked, loss_source="batch", batch=7
    )
    assert asked[0].max_examples == 7


def test_stale_asks_nobody_and_puts_newcomers_first():
    view = view_of(m=3, loss=[0.3, NAN, 0.9, 0.1, NAN])
    chosen = power_of_choice(view, np.random.default_rng(0), loss_source="stale", d=5)
    assert not isinstance(chosen, AskLoss)
    assert chosen.tolist() == [1, 4, 2]


def test_candidates_that_fail_come_last():
    assert play(power_of_choice, view_of(4, 2), fresh=[NAN, 0.1, NAN, 0.2], d=4) == [3, 1]
    assert play(power_of_choice, view_of(4, 3), fresh=[NAN, 0.1, NAN, 0.2], d=4) == [3, 1, 0]
    assert play(power_of_choice, view_of(3, 2), fresh=[NAN] * 3, d=3) == [0, 1]


def test_fewer_candidates_than_places_are_refused():
    with pytest.raises(RecipeError, match="d = 8 candidates for 50 places"):
        power_of_choice(view_of(100, 50), np.random.default_rng(0), d=8)
    with pytest.raises(RecipeError, match="batch"):
        power_of_choice(view_of(9, 2), np.random.default_rng(0), batch=0)


def test_more_candidates_than_clients_means_everyone_there():
    there = np.array([True, False, True, True])
    assert draw_candidates(
        view_of(available=there), np.random.default_rng(0), 99, by_size=True
    ).tolist() == [0, 2, 3]
    assert play(power_of_choice, view_of(available=there, m=9), fresh=[1, 9, 3, 2], d=99) == [
        2,
        3,
        0,
    ]


def test_nobody_there():
    assert play(power_of_choice, view_of(available=np.zeros(3, bool))) == []


def sequential_inclusion(weights, d):
    """Probability of each client to be among d drawn by weight, without replacement."""
    total = np.zeros(len(weights))
    for order in itertools.permutations(range(len(weights)), d):
        left, chance = float(sum(weights)), 1.0
        for i in order:
            chance, left = chance * weights[i] / left, left - weights[i]
        total[list(order)] += chance
    return total


def test_candidates_follow_their_size_and_uniform_ones_do_not():
    sizes, draws = np.array([1, 2, 4, 13]), 4000
    rng = np.random.default_rng(5)
    view = view_of(sizes=sizes)
    for by_size, expected in ((True, sequential_inclusion(sizes, 2)), (False, np.full(4, 0.5))):
        seen = np.zeros(4)
        for _ in range(draws):
            seen[draw_candidates(view, rng, 2, by_size=by_size)] += 1
        assert np.abs(seen / draws - expected).max() < 4.5 * np.sqrt(0.25 / draws)


def test_chosen_clients_have_larger_losses_than_uniform_ones():
    fresh = np.linspace(0, 1, 20)
    share = often(power_of_choice, view_of(20, 3), 300, fresh=fresh, d=6)
    # E[the 3 largest of 6 uniform] is near 5/7 of the range; uniform selection has mean 0.5,
    # standard error 0.01 here
    assert 0.65 < (share * fresh).sum() / 3 < 0.78


def test_losses_are_charged_only_when_they_are_reported_with_the_models():
    assert not bind("selection", power_of_choice, {}).needs()
    assert set(bind("selection", power_of_choice, {"loss_source": "stale"}).needs()) == {"loss"}
