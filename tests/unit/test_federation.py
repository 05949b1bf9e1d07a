"""The loop on scripted clients: plans, slots, waves, failures, memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedskew.aggregation import AGGREGATIONS
from fedskew.errors import RecipeError, RoundFailed, RunError
from fedskew.loop.federation import Method, named, play_round, prepare, run, settle
from fedskew.procedure import PROCEDURES
from fedskew.recipe import method_of, resolve
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.selection import SELECTIONS
from fedskew.types import Chain, Plan, SelectionRule

COUNTS = np.array([[10, 0], [0, 30], [20, 0], [5, 5]])


def add_client_number(client, round, model):
    """Each client adds its number + 1 to every parameter: the result tells who trained when."""
    return Reply(
        model + np.float32(client + 1),
        loss=float(client),
        seconds=0.5,
        steps=2,
        examples=int(COUNTS[client].sum()),
    )


def everyone(view, rng):
    return np.flatnonzero(view.available)


def method(procedure="parallel", **changes):
    stage = PROCEDURES[procedure] if isinstance(procedure, str) else procedure
    base = Method(
        selection=named("selection", "everyone", everyone),
        procedure=named("procedure", "procedure", stage),
        aggregation=named("aggregation", "mean", AGGREGATIONS["mean"]),
        rounds=2,
        clients_per_round=4,
    )
    return replace(base, **changes)


def setting_of(method, script=add_client_number):
    return settle(method, ScriptedRuntime(COUNTS, script=script), seed=3)


def fixed(*chains, **options):
    return lambda ids, view, rng: Plan(chains, **options)


def test_parallel_round_is_the_mean_weighted_by_examples():
    setting = setting_of(method())
    state, _ = play_round(setting, prepare(setting)[0])
    shift = np.average([1, 2, 3, 4], weights=[10, 30, 20, 10])
    assert np.allclose(state.models[0], setting.initial + shift, atol=1e-6)


def test_uniform_weights_are_another_result():
    uniform = named("aggregation", "mean", AGGREGATIONS["mean"], {"weights": "uniform"})
    setting = setting_of(method(aggregation=uniform))
    state, _ = play_round(setting, prepare(setting)[0])
    assert np.allclose(state.models[0], setting.initial + 2.5, atol=1e-6)


def test_a_chain_passes_the_model_on():
    setting = setting_of(method(fixed(Chain(0, (3, 0, 1)))))
    state, record = play_round(setting, prepare(setting)[0])
    assert np.allclose(state.models[0], setting.initial + 4 + 1 + 2, atol=1e-6)
    assert record.chains == (Chain(0, (3, 0, 1)),)


def test_chains_of_unequal_length_are_averaged_by_the_examples_along_them():
    setting = setting_of(method(fixed(Chain(0, (0, 1)), Chain(0, (2,)))))
    state, _ = play_round(setting, prepare(setting)[0])
    assert np.allclose(state.models[0], setting.initial + (40 * 3 + 20 * 3) / 60, atol=1e-6)


def test_slots_are_separate_models_that_begin_with_the_initial_one():
    home = np.array([0, 0, 2, 2])
    setting = setting_of(method(fixed(Chain(0, (0,)), Chain(2, (3,)), home=home)))
    state, record = play_round(setting, prepare(setting)[0])
    shifts = state.models - setting.initial
    assert np.allclose(shifts, np.array([[1], [0], [4]]), atol=1e-6)
    assert state.home.tolist() == home.tolist()
    assert np.isnan(record.accuracy), "several models have no global accuracy"
    assert 0 < record.client_accuracy < 1


@pytest.mark.parametrize(("broken", "shift"), [("skip", 1 + 2), ("drop", 0)])
def test_a_client_that_dies_mid_chain(broken, shift):
    def script(client, round, model):
        return (
            Reply(None, failure="boom") if client == 3 else add_client_number(client, round, model)
        )

    setting = setting_of(method(fixed(Chain(0, (0, 3, 1)), broken=broken), min_ok=0), script)
    state, record = play_round(setting, prepare(setting)[0])
    assert np.allclose(state.models[0], setting.initial + shift, atol=1e-6)
    assert record.failures == {3: "boom"}


@pytest.mark.parametrize("poison", [np.nan, np.inf, "shape"])
def test_a_poisoned_reply_costs_one_update_not_the_round(poison):
    def script(client, round, model):
        if client != 1:
            return add_client_number(client, round, model)
        bad = (
            model[:-1]
            if poison == "shape"
            else np.where(np.arange(len(model)) == 2, np.float32(poison), model)
        )
        return Reply(bad, 0.5, 0.1, 1, 30)

    setting = setting_of(method(), script)
    state, record = play_round(setting, prepare(setting)[0])
    assert list(record.failures) == [1]
    assert np.allclose(
        state.models[0], setting.initial + np.average([1, 3, 4], weights=[10, 20, 10]), atol=1e-6
    )
    assert np.isnan(state.loss[1])
    assert state.times_selected[1] == 1


def test_too_few_replies_end_the_run_with_the_reason():
    setting = setting_of(method(min_ok=1), lambda c, r, m: Reply(None, failure="out of memory"))
    with pytest.raises(
        RoundFailed, match=r"round 1: 0 usable replies, 1 needed \(client 0: out of memory"
    ):
        list(run(setting))


def test_min_ok_zero_keeps_the_model():
    setting = setting_of(method(min_ok=0), lambda c, r, m: Reply(None, failure="gone", sent=False))
    states = [state for state, _ in run(setting)]
    assert states[-1].round == 2
    assert np.array_equal(states[-1].models[0], setting.initial)


def test_a_silent_client_is_waited_for_as_long_as_it_should_have_taken():
    """Unless the recipe has a deadline."""

    def silent(client, round, model):
        if client == 1:
            return Reply(None, failure="gone", sent=False)
        return add_client_number(client, round, model)

    costs = []
    for script in (add_client_number, silent):
        setting = setting_of(method(), script)
        costs.append(play_round(setting, prepare(setting)[0])[1].cost)
    assert costs[1].seconds == pytest.approx(costs[0].seconds, rel=0.01)
    assert 0 < costs[0].seconds < 0.5


def test_a_client_without_examples_is_never_there():
    counts = np.vstack([COUNTS, [[0, 0]]])
    setting = settle(method(), ScriptedRuntime(counts, script=add_client_number), seed=3)
    _, *records = [record for _, record in run(setting)]
    assert [sorted(c for chain in r.chains for c in chain.clients) for r in records] == [
        [0, 1, 2, 3],
        [0, 1, 2, 3],
    ]


def test_nobody_available_is_a_recorded_round():
    setting = setting_of(method(min_ok=0))
    setting.runtime.available = lambda round: np.zeros(4, bool)
    records = [record for _, record in run(setting)]
    assert [record.chains for record in records] == [(), (), ()]


@pytest.mark.parametrize(
    ("ids", "message"), [([1, 1], "twice"), ([9], "not there"), ([-1], "not there")]
)
def test_a_wrong_selection_is_caught(ids, message):
    setting = setting_of(method(selection=named("selection", "mine", lambda view, rng: ids)))
    with pytest.raises(RunError, match=message):
        list(run(setting))


def test_memory_passes_from_round_to_round():
    @dataclass(frozen=True)
    class Counting(SelectionRule):
        step: int = 1

        def choose(self, memory, view, rng):
            seen = memory.get("seen", 0) + self.step
            return everyone(view, rng)[: seen % 4 + 1], {"seen": seen}

    counting = named("selection", "count", Counting, {"step": 2})
    setting = setting_of(method(selection=counting, rounds=3))
    states = [state for state, _ in run(setting)]
    assert [state.memory.get("selection") for state in states] == [
        None,
        {"seen": 2},
        {"seen": 4},
        {"seen": 6},
    ]


def test_going_on_from_any_state_gives_the_same_rest():
    setting = settle(
        method(
            selection=named("selection", "uniform", SELECTIONS["uniform"]),
            rounds=5,
            clients_per_round=2,
        ),
        ScriptedRuntime(COUNTS),
        0,
    )
    whole = list(run(setting))
    for state, record in whole[:-1]:
        rest = list(run(setting, state))
        assert [r.chains for _, r in rest] == [r.chains for _, r in whole[record.round + 1 :]]
        assert np.array_equal(rest[-1][0].models, whole[-1][0].models)


def test_learning_rate_falls_by_the_round():
    m = method(lr_decay=0.5)
    assert [m.job_at(t).lr for t in (1, 2, 3)] == [m.job.lr, m.job.lr / 2, m.job.lr / 4]


def test_learning_rate_falls_by_a_cosine_or_in_steps():
    cosine = method(schedule="cosine", rounds=4)
    shares = [(1 + np.cos(np.pi * gone / 4)) / 2 for gone in range(4)]
    assert [cosine.job_at(t).lr for t in (1, 2, 3, 4)] == pytest.approx(
        [cosine.job.lr * share for share in shares]
    )
    step = method(schedule="step", step_every=2, step_factor=0.1, lr_decay=0.5, rounds=5)
    shares = [1, 0.5, 0.25 * 0.1, 0.125 * 0.1, 0.0625 * 0.01]
    assert [step.job_at(t).lr / step.job.lr for t in range(1, 6)] == pytest.approx(shares)


@pytest.mark.parametrize(
    "local", [{"schedule": "step"}, {"step_every": 3}, {"schedule": "cosine", "step_every": 3}]
)
def test_steps_need_a_length_and_nothing_else_does(local):
    with pytest.raises(RecipeError, match="step_every"):
        resolve({"local": local})


def test_clients_and_server_rule_are_told_the_learning_rate_of_the_round():
    """SCAFFOLD divides by it: the first one would make its control variates wrong."""
    trained, merged = [], []

    class Watching(ScriptedRuntime):
        def train(self, order):
            trained.append(order.job.lr)
            return super().train(order)

    def watched(model, ends):
        merged.append(ends.job.lr)
        return ends.params.mean(axis=0)

    m = method(lr_decay=0.5, rounds=3, aggregation=named("aggregation", "watched", watched))
    list(run(settle(m, Watching(COUNTS), 0)))
    assert trained == merged == [m.job.lr, m.job.lr / 2, m.job.lr / 4]


def test_uniform_selection_is_uniform_and_distinct():
    setting = settle(
        method(
            selection=named("selection", "uniform", SELECTIONS["uniform"]),
            clients_per_round=2,
            rounds=600,
        ),
        ScriptedRuntime(COUNTS),
        1,
    )
    *_, (state, _) = run(setting)
    # 600 draws of 2 out of 4: each count is binomial(600, 1/2), standard deviation 12.2
    assert np.abs(state.times_selected - 300).max() < 5 * 12.3
    assert state.times_selected.sum() == 1200


def test_a_client_without_examples_is_never_seen_even_if_its_runtime_offers_it():
    world = ScriptedRuntime(np.array([[4, 0], [0, 0], [0, 4]]))
    world.available = lambda round: np.ones(3, bool)
    numbers = {"rounds": 2, "clients_per_round": 3}
    setting = settle(method_of(resolve({"run": numbers})), world, 0)
    *_, (state, _) = run(setting)
    assert state.times_selected.tolist() == [2, 0, 2]
