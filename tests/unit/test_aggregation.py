"""Server rules: equal to others with the knob off, different with it on, checked by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedskew.aggregation.adaptive import AdaptiveServer
from fedskew.aggregation.dyn import FedDyn
from fedskew.aggregation.mean import mean
from fedskew.aggregation.momentum import ServerMomentum
from fedskew.aggregation.nova import FedNova, effective_steps
from fedskew.aggregation.scaffold import Scaffold
from fedskew.errors import RecipeError
from fedskew.loop.federation import named, run, settle
from fedskew.recipe import method_of, resolve
from fedskew.runtime.replies import Reply, collect
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import AggregationRule, Chain, Ends, Layout, LocalJob, Plan, bind

LAYOUT = Layout.of(
    [("w", (3,), "weight"), ("running_mean", (1,), "buffer"), ("seen", (), "counter")]
)
MODEL = np.array([1.0, 2.0, 3.0, 0.5, 4.0], np.float32)


def ends(*shifts, examples=None, steps=None, job=None):
    rows = np.stack([MODEL + np.float32(s) for s in shifts])
    n = len(rows)
    return Ends(
        rows, examples or [10] * n, steps or [5] * n, LAYOUT, np.arange(n), 10, job or LocalJob()
    )


def test_buffers_are_averaged_and_counters_take_the_maximum():
    result = mean(MODEL, ends(1, 3))
    assert result.tolist() == [3, 4, 5, 2.5, 7]


def test_momentum_without_beta_is_fedavg():
    both = ends(1, 2, examples=[10, 30])
    moved, _ = ServerMomentum(beta=0.0).merge({}, MODEL, both)
    assert np.allclose(moved, mean(MODEL, both), atol=1e-6)


def test_momentum_keeps_moving_where_fedavg_stands():
    _, memory = ServerMomentum(beta=0.7).merge({}, MODEL, ends(1))
    moved, memory = ServerMomentum(beta=0.7).merge(memory, MODEL, ends(0))
    assert np.allclose(moved[:3], MODEL[:3] + 0.7)
    assert np.allclose(mean(MODEL, ends(0)), MODEL)
    moved, _ = ServerMomentum(beta=0.7, server_lr=2.0).merge(memory, MODEL, ends(0))
    assert np.allclose(moved[:3], MODEL[:3] + 2 * 0.49, atol=1e-6)


@pytest.mark.parametrize("rule", ["adagrad", "adam", "yogi"])
def test_adaptive_rules_by_hand_over_three_rounds(rule):
    """An independent scalar version of Reddi et al., Algorithm 2."""
    lr, tau, b1, b2 = 0.1, 0.05, 0.9, 0.99
    m, v, w, memory, model = 0.0, tau**2, 1.0, {}, MODEL
    for shift in (0.3, -0.1, 0.2):
        server = AdaptiveServer(rule=rule, server_lr=lr, tau=tau, beta1=b1, beta2=b2)
        shifted = replace(ends(0), params=model[None] + np.float32(shift))
        model, memory = server.merge(memory, model, shifted)
        if rule == "adagrad":
            m, v = shift, v + shift**2
        else:
            m = b1 * m + (1 - b1) * shift
            sign = (v > shift**2) - (v < shift**2)
            v = b2 * v + (1 - b2) * shift**2 if rule == "adam" else v - (1 - b2) * shift**2 * sign
        w += lr * m / (v**0.5 + tau)
        assert model[0] == pytest.approx(w, abs=1e-6)


def test_adaptive_steps_do_not_grow_with_the_update_as_fedavg_does():
    small, _ = AdaptiveServer(rule="adagrad", server_lr=0.3, tau=1e-3).merge({}, MODEL, ends(1))
    large, _ = AdaptiveServer(rule="adagrad", server_lr=0.3, tau=1e-3).merge({}, MODEL, ends(100))
    assert np.allclose(small[:3] - MODEL[:3], large[:3] - MODEL[:3], atol=2e-3)
    assert small[3] == MODEL[3] + 1, "buffers are averaged, never optimised"


def test_adam_bias_correction_and_zero_start():
    moved, _ = AdaptiveServer(
        rule="adam", server_lr=1.0, tau=1e-9, v0="zero", bias_correction=True
    ).merge({}, MODEL, ends(0.5))
    assert np.allclose(moved[:3] - MODEL[:3], 1.0, atol=1e-5), (
        "the first corrected Adam step has length server_lr"
    )


def test_nova_with_equal_steps_is_fedavg():
    both = ends(1, -2, 0.5, examples=[10, 30, 20], steps=[7, 7, 7])
    assert np.allclose(FedNova().merge({}, MODEL, both)[0], mean(MODEL, both), atol=1e-6)


def test_nova_fixes_unequal_steps():
    """Two clients pull by +1 and -1 per step; one takes 9 steps, the other 1. FedAvg follows the
    busy one, FedNova does not.
    """
    uneven = ends(9, -1, steps=[9, 1])
    assert np.allclose(mean(MODEL, uneven)[:3] - MODEL[:3], 4)
    assert np.allclose(FedNova().merge({}, MODEL, uneven)[0][:3] - MODEL[:3], 0, atol=1e-6)


def test_nova_by_hand():
    """Shares 1/4 and 3/4, moves per step +1 and -1/2: (2/4 + 18/4) steps of 1/4 - 3/8 each."""
    uneven = ends(2, -3, examples=[10, 30], steps=[2, 6])
    assert np.allclose(FedNova().merge({}, MODEL, uneven)[0][:3] - MODEL[:3], 5 * -0.125, atol=1e-6)
    assert np.allclose(
        FedNova(weights="uniform").merge({}, MODEL, uneven)[0][:3] - MODEL[:3], 4 * 0.25, atol=1e-6
    )


def test_effective_steps_add_up_the_weights_of_the_gradients():
    """a = sum over steps of the total factor with which that step's gradient enters the result."""
    rho, tau = 0.9, 6
    brute = sum(sum(rho**j for j in range(tau - k)) for k in range(tau))
    assert effective_steps(np.array([tau]), LocalJob(momentum=rho))[0] == pytest.approx(brute)
    lr, mu = 0.1, 0.5
    brute = sum((1 - lr * mu) ** k for k in range(tau))
    assert effective_steps(np.array([tau]), LocalJob(lr=lr, prox_mu=mu))[0] == pytest.approx(brute)
    with pytest.raises(RecipeError, match="no normaliser"):
        effective_steps(np.array([3]), LocalJob(optimizer="adam"))


def test_nova_adds_up_the_turns_of_a_chain():
    """Momentum .9 and turns of 5 and 3 steps reach 13.14 + 5.61 = 18.75, not the 28.74 of 8 steps
    in a row: the second client begins without momentum. Alike with a proximal term.
    """

    def reach(job, turn):
        both = replace(ends(1, 1, steps=[sum(turn), 1]), job=job, turns=(turn, (1,)))
        moved, _ = FedNova(weights="uniform").merge({}, MODEL, both)
        # both moved by 1: change = (a + 1) / 2 * (1 / a + 1) / 2, solved for a
        change = float(moved[0] - MODEL[0])
        twice = 4 * change - 2  # a + 1 / a
        return (twice + np.sqrt(twice**2 - 4)) / 2

    assert reach(LocalJob(momentum=0.9), (5, 3)) == pytest.approx(18.754, abs=1e-2)
    assert reach(LocalJob(momentum=0.9), (8,)) == pytest.approx(28.742, abs=1e-2)
    prox = LocalJob(lr=0.1, prox_mu=0.5)
    by_hand = sum(sum(0.95**k for k in range(tau)) for tau in (5, 3))
    assert reach(prox, (5, 3)) == pytest.approx(by_hand, abs=1e-3)
    assert reach(LocalJob(), (5, 3)) == pytest.approx(8, abs=1e-3)


def test_a_chain_tells_the_server_rule_its_turns():
    seen = []

    @dataclass(frozen=True)
    class Watching(AggregationRule):
        def merge(self, memory, model, ends):
            seen.append((ends.turns, ends.steps.tolist()))
            return model, memory

    def script(client, round, model):
        return Reply(model, 0.5, 0.1, 3 + client, 10)

    method = method_of(resolve({"procedure": {"use": "sequential"}, "run": {"rounds": 1}}))
    method = replace(method, aggregation=named("aggregation", "watching", Watching))
    world = ScriptedRuntime(np.full((3, 2), 5), script=script)
    list(run(settle(method, world, 0)))
    ((turns, steps),) = seen
    assert sorted(turns[0]) == [3, 4, 5]
    assert steps == [12]


@pytest.mark.parametrize("name", ["scaffold", "dyn"])
def test_groups_are_federations_of_their_own(name):
    """Two groups of 2 and 4 clients that all train: the same as running each group alone."""
    groups = [[0, 1], [2, 3, 4, 5]]

    class Pulled(ScriptedRuntime):
        """Client k is pulled towards k, and towards whatever it is told to add."""

        def __init__(self, members):
            super().__init__(np.full((len(members), 2), 5))
            self.members = members

        def train(self, order):
            replies = []
            for row, client in enumerate(order.clients):
                model = order.models[order.start[row]]
                gradient = model - np.float32(self.members[client])
                gradient = gradient + order.corrections[row]
                replies.append(Reply(model - np.float32(0.05) * gradient, 0.5, 0.1, 1, 10))
            return collect(replies, order.models.shape[1])

    def grouped(ids, view, rng):
        home = np.array([0, 0, 1, 1, 1, 1])
        return Plan(tuple(Chain(int(home[c]), (int(c),)) for c in ids), home=home)

    def models(members, procedure=None):
        numbers = {"rounds": 3, "clients_per_round": len(members)}
        recipe = {"aggregation": {"use": name}, "run": numbers, "local": {"lr": 0.05}}
        method = method_of(resolve(recipe))
        if procedure is not None:
            method = replace(method, procedure=named("procedure", "grouped", procedure))
        return list(run(settle(method, Pulled(members), 0)))[-1][0].models

    together = models(list(range(6)), grouped)
    for slot, members in enumerate(groups):
        assert np.allclose(together[slot], models(members)[0], atol=1e-6)


# --------------------------------------------- rules that correct the clients' steps

# client i: f_i(w) = curvature/2 (w - optimum)^2
CURVATURE, OPTIMUM = np.array([1.0, 4.0]), np.array([0.0, 5.0])
# of the sum; where FedAvg with many local steps does not end
BEST = (CURVATURE * OPTIMUM).sum() / CURVATURE.sum()
LINE = Layout.of([("w", (1,), "weight")])


def train_on_quadratics(rule, *, rounds=300, local_steps=20, lr=0.05, **options):
    """Two clients, everyone every round, gradients by hand; returns model and rule's memory."""
    bound = bind("aggregation", rule, options)
    job = bound.job(LocalJob(lr=lr))
    model, memory = np.zeros(1, np.float32), {}
    for _ in range(rounds):
        added = bound.corrections(memory, [0, 1], 1) if bound.corrects else np.zeros((2, 1))
        returned = np.repeat(model[None], 2, axis=0)
        for _ in range(local_steps):
            gradient = (
                CURVATURE[:, None] * (returned - OPTIMUM[:, None])
                + added
                + job.prox_mu * (returned - model)
            )
            returned = returned - job.lr * gradient
        given = Ends(returned, [1, 1], [local_steps] * 2, LINE, [0, 1], 2, job)
        model, memory = bound.merge(memory, model, given)
    return float(model[0]), memory


def test_fedavg_drifts_and_scaffold_does_not():
    drifted, _ = train_on_quadratics(mean)
    corrected, memory = train_on_quadratics(Scaffold)
    assert abs(drifted - BEST) > 0.5
    assert corrected == pytest.approx(BEST, abs=1e-3)
    # at the optimum each client's variate is its own gradient there, and they cancel
    assert memory["own"]["0"][0] == pytest.approx(CURVATURE[0] * (BEST - OPTIMUM[0]), abs=1e-2)
    assert memory["common"][0] == pytest.approx(0.0, abs=1e-2)


def test_feddyn_finds_the_common_optimum():
    found, memory = train_on_quadratics(FedDyn, alpha=1.0, local_steps=200)
    assert found == pytest.approx(BEST, abs=1e-2)
    assert memory["shared"] == pytest.approx(
        (memory["own"]["0"] + memory["own"]["1"]) / 2, abs=1e-4
    ), "all took part"


def test_scaffolds_first_round_is_fedavg():
    both = ends(1, 3)
    moved, _ = Scaffold().merge({}, MODEL, both)
    assert np.allclose(moved, mean(MODEL, both, weights="uniform"), atol=1e-6)
    assert not Scaffold().corrections({}, [0, 1], 3).any()


def test_scaffold_by_hand_with_two_of_ten_clients():
    """Two rounds of Algorithm 1, option II: c moves by the two clients' share of all ten."""
    reach, taken = 5 * LocalJob().lr, np.array([1.0, 3.0])
    moved, memory = Scaffold(server_lr=0.5).merge({}, MODEL, ends(*taken))
    assert np.allclose(moved[:3] - MODEL[:3], 0.5 * 2)
    assert moved[3] == MODEL[3] + 2, "buffers are averaged, server_lr is for weights"
    own = -taken / reach
    common = own.sum() / 10
    assert memory["common"] == pytest.approx(common, rel=1e-5)
    added = Scaffold().corrections(memory, [0, 1, 7], 3)[:, 0]
    assert added == pytest.approx([common - own[0], common - own[1], common], rel=1e-5)
    _, memory = Scaffold().merge(memory, MODEL, ends(*taken))
    assert memory["own"]["1"] == pytest.approx(own[1] - common - taken[1] / reach, rel=1e-5)
    assert memory["common"] == pytest.approx(
        common + (2 * -common - taken.sum() / reach) / 10, rel=1e-5
    )


def test_feddyn_by_hand_with_two_of_ten_clients():
    """h = -(alpha / 10) (1 + 3), so the mean of the two models moves on by 0.4."""
    moved, memory = FedDyn(alpha=0.5).merge({}, MODEL, ends(1, 3))
    assert np.allclose(moved[:3] - MODEL[:3], 2 + 0.4, atol=1e-6)
    assert memory["shared"] == pytest.approx(-0.2)
    assert FedDyn(alpha=0.5).corrections(memory, [0, 1, 7], 3)[:, 0] == pytest.approx(
        [0.5, 1.5, 0.0]
    )
    moved, _ = FedDyn(alpha=0.5).merge(memory, MODEL, ends(1, 3))
    assert np.allclose(moved[:3] - MODEL[:3], 2 + 0.8, atol=1e-6)


def test_state_is_kept_only_for_clients_that_were_chosen():
    for rule in (Scaffold(), FedDyn()):
        _, memory = rule.merge({}, MODEL, ends(1, 3))
        assert set(memory["own"]) == {"0", "1"}
        assert rule.corrections(memory, [7], 3).shape == (1, 3)


@pytest.mark.parametrize(
    "local", [{"optimizer": "adam"}, {"momentum": 0.9}, {"prox_mu": 0.1}, {"weight_decay": 0.1}]
)
def test_scaffold_refuses_what_its_mathematics_does_not_allow(local):
    with pytest.raises(RecipeError, match="needs plain SGD"):
        method_of(resolve({"aggregation": {"use": "scaffold"}, "local": local}))


def test_feddyn_brings_its_own_penalty():
    job = method_of(resolve({"aggregation": {"use": "dyn", "alpha": 0.05}})).job
    assert (job.prox_mu, job.clip_norm) == (0.05, 10.0)
    with pytest.raises(RecipeError, match="own quadratic term"):
        method_of(resolve({"aggregation": {"use": "dyn"}, "local": {"prox_mu": 0.1}}))
    with pytest.raises(RecipeError, match="not positive"):
        method_of(resolve({"aggregation": {"use": "dyn", "alpha": 0}}))
