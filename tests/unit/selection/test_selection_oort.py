"""Oort: scores by hand, exploration and exploitation in their shares, the pacer, and clients
that try to be asked for ever.
"""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.errors import RecipeError
from fedskew.loop.federation import run, settle
from fedskew.recipe import method_of, resolve
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.selection.oort import Oort, _exploit, _scores, _slowness, draw
from fedskew.types import Feedback, Population, View


def view_of(clients, m, *, round=1, last=None, latency=None, available=None, sizes=None):
    last = np.zeros(clients, np.int64) if last is None else np.asarray(last)
    return View(
        round=round,
        budget=m,
        population=Population(
            np.full(clients, 10) if sizes is None else sizes, latency_seconds=latency
        ),
        available=np.ones(clients, bool) if available is None else available,
        loss=np.full(clients, np.nan),
        times_selected=(last > 0).astype(int),
        last_selected=last,
    )


def feedback_of(round, clients, loss, seconds=None, examples=None):
    clients = np.asarray(clients)
    return Feedback(
        round=round,
        clients=clients,
        loss=loss,
        seconds=np.ones(len(clients)) if seconds is None else seconds,
        examples=np.full(len(clients), 10) if examples is None else examples,
        steps=np.ones(len(clients)),
        delta=np.zeros((len(clients), 1)),
        head_shape=(0, 0),
    )


def simulate(rounds, clients, m, loss_of, *, seed=0, latency=None, seconds=None, **options):
    """(rounds, m) ids chosen in a world where client k reports loss_of(k)."""
    memory, last, times, chosen = {}, np.zeros(clients, np.int64), np.zeros(clients, np.int64), []
    for round in range(1, rounds + 1):
        view = View(
            round=round,
            budget=m,
            population=Population(np.full(clients, 10), latency_seconds=latency),
            available=np.ones(clients, bool),
            loss=np.full(clients, np.nan),
            times_selected=times,
            last_selected=last,
        )
        ids, memory = Oort(**options).choose(memory, view, np.random.default_rng([seed, round]))
        took = None if seconds is None else seconds[ids]
        memory = Oort(**options).learn(
            memory, feedback_of(round, ids, [loss_of(k) for k in ids], took)
        )
        last, times = last.copy(), times.copy()
        last[ids], times[ids] = round, times[ids] + 1
        chosen.append(ids)
    return np.array(chosen), memory


# ---------------------------------------------------------------- by hand


def test_score_is_clipped_scaled_utility_plus_the_bonus_for_old_figures():
    """Utilities 10, 20, 30: P90 = 28, so (0, 10, 18) / 20; round 5, last trained in 4, 2 and 1."""
    view = view_of(4, 1, round=5, last=[4, 2, 1, 0])
    found = _scores(np.array([10.0, 20.0, 30.0, np.nan]), view, np.array([0, 1, 2]), 90, 0.1)
    assert found == pytest.approx(
        np.array([0, 0.5, 0.9]) + np.sqrt(0.1 * np.log(5) / np.array([4, 2, 1]))
    )


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_scores_do_not_depend_on_the_unit_of_losses(unit):
    view = view_of(3, 1, round=1, last=[1, 1, 1])
    found = _scores(unit * np.array([1.0, 2.0, 3.0]), view, np.arange(3), 100, 0.1)
    assert found == pytest.approx([0, 0.5, 1])


def test_utilities_that_hardly_differ_are_not_blown_up():
    """The range counts as 1e-4 at least (FedScale): noise does not become a score of 1."""
    view = view_of(3, 1, round=1, last=[1, 1, 1])
    found = _scores(np.array([5.0, 5.0, 5.00001]), view, np.arange(3), 100, 0.1)
    assert found == pytest.approx([0, 0, 0.1], abs=1e-9)


def test_a_client_without_a_usable_loss_has_the_lowest_utility():
    view = view_of(3, 1, round=5, last=[1, 1, 1])
    found = _scores(np.array([10.0, np.nan, 30.0]), view, np.arange(3), 90, 0.1)
    assert found[1] == found[0] < found[2]
    assert np.isfinite(_scores(np.full(3, np.nan), view, np.arange(3), 90, 0.1)).all()


def test_clients_slower_than_preferred_are_cut_by_the_square():
    """30th percentile of 1, 2, 3, 4 is 1.9."""
    factor = _slowness(np.array([1.0, 2, 3, 4, np.nan]), 30, 2.0)
    assert factor == pytest.approx([1, 0.95**2, (1.9 / 3) ** 2, (1.9 / 4) ** 2, 1])
    assert (_slowness(np.array([1.0, 9]), 100, 2.0) == 1).all()
    assert (_slowness(np.full(3, np.nan), 30, 2.0) == 1).all()


def test_draws_follow_the_weights():
    """First draws of 4,000: binomial around the weights, standard deviation below 32."""
    weights = np.array([1.0, 2.0, 5.0, 0.0])
    drawn = np.array([draw(weights, 4, np.random.default_rng(seed)) for seed in range(4000)])
    assert np.abs(np.bincount(drawn[:, 0], minlength=4) - 4000 * weights / 8).max() < 150
    assert (drawn[:, 3] == 3).all()
    second = np.bincount(drawn[drawn[:, 0] == 2][:, 1], minlength=4)  # those left: 1 and 2
    assert second[1] / second[:2].sum() == pytest.approx(2 / 3, abs=0.06)


def test_exploitation_admits_by_the_cut_off_score():
    score = np.array([1.0, 0.9, 0.5, 0.04, 0.01])
    drawn = {
        int(i) for seed in range(200) for i in _exploit(score, 2, 0.05, np.random.default_rng(seed))
    }
    assert drawn == {0, 1, 2}  # the cut-off is the second best, 0.9; 5 % of it is 0.045
    strict = {
        int(i) for seed in range(50) for i in _exploit(score, 2, 1.0, np.random.default_rng(seed))
    }
    assert strict == {0, 1}


@pytest.mark.parametrize(("round", "explored"), [(1, 8), (20, 6), (200, 3)])
def test_the_share_of_new_clients_falls_to_its_floor(round, explored):
    """0.9 * 0.98^t of 10: 8.82, 6.008, 0.158 -> floor 3."""
    view = view_of(60, 10, round=round, last=[1] * 30 + [0] * 30)
    ids, memory = Oort().choose({}, view, np.random.default_rng(0))
    assert (ids >= 30).sum() == explored
    assert memory["exploited"].tolist() == ids[: 10 - explored].tolist()


@pytest.mark.parametrize(("tried", "explored"), [(0, 10), (1, 9), (58, 2), (60, 0)])
def test_the_budget_is_filled_from_the_other_side_when_one_runs_dry(tried, explored):
    view = view_of(60, 10, round=200, last=[1] * tried + [0] * (60 - tried))
    ids, _ = Oort().choose({}, view, np.random.default_rng(0))
    assert len(set(ids.tolist())) == 10
    assert (ids >= tried).sum() == explored


def test_new_clients_are_drawn_by_size_and_speed():
    sizes, latency = np.array([100, 100, 10, 10]), np.array([1.0, 10.0, 1.0, 10.0])
    view = view_of(4, 1, sizes=sizes, latency=latency)
    first = np.array(
        [Oort().choose({}, view, np.random.default_rng(seed))[0][0] for seed in range(600)]
    )
    counts = np.bincount(first, minlength=4)
    assert counts[0] > 4 * counts[2] > 0
    assert counts[0] > 20 * counts[1]


# ---------------------------------------------------------------- what it learns


def test_it_learns_utility_and_seconds():
    ids, memory = Oort().choose({}, view_of(5, 2), np.random.default_rng(0))
    learned = Oort().learn(memory, feedback_of(1, ids, [2.0, np.nan], [3.0, 4.0], [10, 20]))
    assert learned["utility"][ids[0]] == 20
    assert np.isnan(learned["utility"][ids[1]])
    assert learned["seconds"][ids].tolist() == [3, 4]
    assert np.isnan(memory["utility"]).all()


def pacer(gains, start=30.0):
    """The percentile after rounds in which the one exploited client had these utilities."""
    memory = {
        "utility": np.full(2, np.nan),
        "seconds": np.full(2, np.nan),
        "gained": np.empty(0),
        "percentile": start,
    }
    for round, gain in enumerate(gains, start=1):
        given = memory | {"exploited": np.array([0])}
        memory = Oort(pacer_rounds=3, pacer_percent=5.0).learn(
            given, feedback_of(round, [0, 1], [gain / 10, 9.0])
        )
    return memory["percentile"]


def test_the_pacer_allows_slower_clients_when_utility_stands_still():
    assert pacer([10] * 5) == 30  # two windows of three rounds are needed
    assert pacer([10] * 6) == 35
    assert pacer([10] * 9) == 40
    assert pacer([10] * 3 + [20] * 3) == 30
    assert pacer([1] * 3 + [20] * 3) == 25
    assert pacer([10] * 6, start=98.0) == 100


def test_slow_clients_return_as_the_pacer_goes_up():
    latency = np.where(np.arange(20) % 2, 100.0, 1.0)
    first, _ = simulate(80, 20, 5, lambda k: 1.0, latency=latency, epsilon_floor=0.0)
    assert (first[20:40] % 2).mean() < 0.1
    late, memory = simulate(400, 20, 5, lambda k: 1.0, latency=latency, epsilon_floor=0.0)
    assert memory["percentile"] == 100
    assert (late[-50:] % 2).mean() > 0.3


def test_durations_come_from_latencies_or_from_the_clock():
    slow = np.where(np.arange(20) < 10, 1.0, 50.0)
    options = {"epsilon_floor": 0.0, "pacer_rounds": 1000}
    for latency, seconds, choice, avoided in [
        (slow, None, "auto", True),
        (None, slow, "auto", True),
        (slow[::-1], slow, "measured", True),
        (slow, slow, "ignored", False),
    ]:
        chosen, _ = simulate(
            60, 20, 5, lambda k: 1.0, latency=latency, seconds=seconds, duration=choice, **options
        )
        assert ((chosen[20:] >= 10).mean() < 0.1) == avoided, (choice, avoided)


# ---------------------------------------------------------------- what it is for


def test_clients_of_high_loss_train_more_often():
    """Losses 0.02 to 2 and nobody slow; uniform selection would give a mean of 1.01 with a
    standard deviation of 0.03.
    """
    chosen, _ = simulate(80, 100, 10, lambda k: (k + 1) / 50, cut_off=0.95, seed=1)
    assert ((chosen[40:] + 1) / 50).mean() > 1.2
    gentle, _ = simulate(80, 100, 10, lambda k: (k + 1) / 50, seed=1)
    assert ((gentle[40:] + 1) / 50).mean() > 1.1


def test_everybody_is_tried():
    chosen, _ = simulate(60, 60, 5, lambda k: 1.0)
    assert len(np.unique(chosen)) == 60


@pytest.mark.parametrize("lie", [np.nan, 0.0])
def test_a_client_without_usable_losses_is_not_asked_for_ever(lie):
    """Once all others are tried, FedScale's rule explores such a client in every round."""
    chosen, _ = simulate(200, 20, 4, lambda k: lie if k == 7 else 1.0)
    assert (chosen[100:] == 7).any(axis=1).mean() < 0.25


@pytest.mark.parametrize(
    "option", [{"epsilon": 1.5}, {"epsilon_floor": -0.1}, {"cut_off": 2.0}, {"pacer_rounds": 0}]
)
def test_options_out_of_range_are_refused(option):
    with pytest.raises(RecipeError, match=next(iter(option))):
        Oort(**option).choose({}, view_of(3, 1), np.random.default_rng(0))


def test_it_plays_in_the_loop_and_its_losses_are_charged():
    def script(client, round, model):
        return Reply(model, 0.5 + client / 10, 1.0, 1, 10)

    recipe = resolve(
        {
            "selection": {"use": "fedskew.selection.oort:Oort"},
            "run": {"rounds": 8, "clients_per_round": 3},
        }
    )
    setting = settle(method_of(recipe), ScriptedRuntime(np.full((9, 2), 5), script=script), 0)
    *_, (state, record) = run(setting)
    memory = state.memory["selection"]
    tried = state.times_selected > 0
    assert np.array_equal(np.isfinite(memory["utility"]), tried)
    assert memory["utility"][tried] == pytest.approx(10 * (0.5 + np.arange(9) / 10)[tried])
    assert ("up", "loss", 12) in [(t.direction, t.kind, t.bytes) for t in record.transfers]
