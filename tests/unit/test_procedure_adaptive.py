"""AFLS: what it decides, when it looks again, its dial and its pilot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedskew.accounting.traffic import total_bytes
from fedskew.data.partitions import PARTITIONS
from fedskew.data.partitions.partition import Pool
from fedskew.errors import RecipeError
from fedskew.labels.omega import omega, omega_balanced, threshold
from fedskew.loop.federation import run, settle
from fedskew.procedure.adaptive import Adaptive, plateau, reported_loss
from fedskew.recipe import method_of, resolve
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import Population, Signal, View


def owners(k, clients=10, classes=10):
    """Client i holds classes i .. i + k - 1: every class has k owners."""
    return np.array(
        [[50 if (c - i) % classes < k else 0 for c in range(classes)] for i in range(clients)]
    )


def view_of(counts, round=1, loss=None, last=None):
    counts = np.asarray(counts, np.float64)
    sizes, size = counts.sum(axis=1), len(counts)
    return View(
        round=round,
        budget=size,
        population=Population(sizes.astype(np.int64)),
        available=np.ones(size, bool),
        loss=np.full(size, np.nan) if loss is None else np.asarray(loss, float),
        times_selected=np.zeros(size, np.int64),
        last_selected=np.zeros(size, np.int64) if last is None else np.asarray(last),
        signal=Signal(counts / sizes[:, None], sizes, "disclosed"),
    )


def step(view, memory=None, **options):
    return Adaptive(**options).plan(
        memory or {}, np.arange(view.size), view, np.random.default_rng(view.round)
    )


def decisions(tables, **options):
    """The number of chains in each round, for these label counts round by round."""
    memory, found = {}, []
    for t, table in enumerate(tables, 1):
        plan, memory = step(view_of(table, t), memory, **options)
        found.append(len(plan.chains))
    return found


# ---------------------------------------------------------------- the decision


@pytest.mark.parametrize(("k", "chains"), [(1, 1), (2, 1), (3, 10), (5, 10), (10, 10)])
@pytest.mark.parametrize("options", [{}, {"theta_classes": 2}])
def test_cifar_like_clients_with_k_classes(k, chains, options):
    """docs/methods.md 12: paper 003's partition on 50,000 labels, 10 devices; label counts only."""
    pool = Pool(np.repeat(np.arange(10), 5000), 10)
    for seed in range(3):
        made = PARTITIONS["equal_classes"](
            pool, 10, np.random.default_rng(seed), classes_per_client=k
        )
        counts = np.stack(
            [
                np.bincount(pool.labels[rows], minlength=10)
                for rows in np.split(made.order, made.offsets[1:-1])
            ]
        )
        plan, memory = step(view_of(counts), **options)
        assert len(plan.chains) == chains
        assert memory["omega"] == pytest.approx(
            {1: 10.131, 2: 8.888, 3: 7.698, 5: 5.410, 10: 0.0}[k], abs=1e-3
        )
        assert plan.relay == ("d2d" if chains == 1 else "server")


def test_at_theta_it_is_sequential():
    rows = owners(4) / 200
    assert len(step(view_of(owners(4)), theta=omega(rows))[0].chains) == 1
    assert len(step(view_of(owners(4)), theta=omega(rows) + 1e-6)[0].chains) == 10


def test_it_looks_at_everybody_not_only_at_those_who_train():
    plan, _ = Adaptive().plan({}, np.array([0, 1]), view_of(owners(2)), np.random.default_rng(0))
    assert [len(chain.clients) for chain in plan.chains] == [2]


def test_a_threshold_in_classes_carries_over_to_other_numbers_of_classes():
    for classes in (4, 10, 50):
        two, three = owners(2, classes, classes), owners(3, classes, classes)
        assert [len(step(view_of(t), theta_classes=2)[0].chains) for t in (two, three)] == [
            1,
            classes,
        ]
    assert threshold(2, theta=1.0, theta_classes=2, eps=1e-6) == pytest.approx(omega_balanced(1, 2))
    assert threshold(4, theta=1.0, theta_classes=1, eps=1e-6) == pytest.approx(omega_balanced(1, 4))
    with pytest.raises(
        RecipeError, match=r"theta: 8.5 is out of range: with 2 classes .* at most 6.215"
    ):
        step(view_of(owners(1, 4, 2)))


# ---------------------------------------------------------------- looking again


def test_without_refresh_the_first_decision_stands():
    assert decisions([owners(2), owners(10), owners(10)]) == [1, 1, 1]


def test_with_refresh_it_follows_changed_histograms_every_so_many_rounds():
    tables = [owners(2)] + [owners(10)] * 4 + [owners(1)] * 4
    assert decisions(tables, refresh=3) == [1, 1, 1, 10, 10, 10, 1, 1, 1]


def test_unchanged_histograms_are_not_decided_again():
    _, memory = step(view_of(owners(2), 1), refresh=1)
    _, again = step(view_of(owners(2), 2), {**memory, "omega": -1.0}, refresh=1)
    assert again == {**memory, "omega": -1.0, "looked": 2}
    assert memory["looked"] == 1


def mixed(share):
    """Clients with 2 classes each, but for this share of everything."""
    return 1000 * (1 - share) * owners(2) / 100 + 1000 * share / 10


def test_hysteresis_holds_what_it_is_doing_inside_the_band():
    rows = {share: mixed(share) / 1000 for share in (0.0, 1e-4, 3e-4)}
    high, middle, low = (omega(r) for r in rows.values())
    theta = middle / 1.01  # the middle is 1 % above theta
    assert high > theta * 1.05 > middle > theta > theta * 0.95 > low
    up = [mixed(3e-4), mixed(1e-4), mixed(0.0), mixed(1e-4), mixed(3e-4)]
    assert decisions(up, theta=theta, refresh=1) == [10, 10, 1, 1, 10]
    assert decisions(up, theta=theta, refresh=1, hysteresis=0.0) == [10, 1, 1, 1, 10]


def test_memory_is_not_changed_in_place():
    _, memory = step(view_of(owners(2), 1), refresh=1)
    before = dict(memory)
    step(view_of(owners(10), 2), memory, refresh=1)
    assert memory == before


# ---------------------------------------------------------------- the dial


def test_the_dial_takes_as_many_chains_as_theta_allows():
    assert decisions([owners(2)], dial=True, theta=0.5) == [2]
    assert decisions([owners(2)], dial=True, theta=6.6) == [5]
    assert decisions([owners(10)], dial=True) == [10]
    assert decisions([owners(1)], dial=True, theta=0.5) == [1]


def test_the_dial_turns_when_histograms_change():
    tables = [owners(2), owners(2), owners(10), owners(10), owners(1)]
    # 1 class each: 2 chains of 5.41
    assert decisions(tables, dial=True, theta=6.6, refresh=2) == [5, 5, 10, 10, 2]
    assert decisions([owners(2), owners(10)], dial=True, theta=6.6) == [5, 5]


def test_groups_of_the_dial_are_cut_anew_every_round():
    memory, seen = {}, set()
    for t in range(1, 7):
        plan, memory = step(view_of(owners(2), t), memory, dial=True, theta=6.6)
        seen.add(frozenset(frozenset(chain.clients) for chain in plan.chains))
    assert len(seen) > 3


# ---------------------------------------------------------------- the pilot


@pytest.mark.parametrize("end", [0.0, 0.4, 1.7])
@pytest.mark.parametrize("rate", [0.3, 0.9])
def test_the_plateau_of_a_geometric_curve(end, rate):
    assert plateau(end + 1.5 * rate ** np.arange(15)) == pytest.approx(end, abs=0.02)


def test_the_plateau_of_little_or_nothing():
    assert np.isnan(plateau(np.array([1.0, np.nan, 0.9])))
    assert plateau(np.array([2.0, np.nan, 1.0, 0.75, 0.625])) < 0.7
    assert plateau(np.array([1.0, 1.1, 1.3])) == 1.3


def test_the_loss_of_a_round_is_that_of_its_clients_by_examples():
    view = view_of([[30, 0], [0, 10], [5, 5]], round=4, loss=[1.0, 2.0, 9.0], last=[3, 3, 2])
    assert reported_loss(view) == pytest.approx((30 * 1 + 10 * 2) / 40)
    assert np.isnan(reported_loss(replace(view, round=9)))


def pilot(end, required, rounds=9):
    """Clients whose losses fall from 2.3 towards ``end``; five pilot rounds."""

    def script(client, round, model):
        return Reply(model + np.float32(1), end + (2.3 - end) * 0.6 ** (round - 1), 0.1, 1, 10)

    recipe = {
        "local": {"report_loss": "start"},
        "procedure": {"use": "adaptive", "pilot_rounds": 5, "required_loss": required},
        "run": {"rounds": rounds, "clients_per_round": 4},
    }
    return settle(method_of(resolve(recipe)), ScriptedRuntime(np.full((4, 2), 5), script=script), 0)


@pytest.mark.parametrize(("end", "after"), [(1.2, 1), (0.3, 4)])
def test_the_pilot_turns_sequential_if_the_plateau_is_too_high(end, after):
    played = list(run(pilot(end, required=0.8)))
    assert [len(record.chains) for _, record in played[1:]] == [4] * 5 + [after] * 4
    assert played[-1][0].memory["procedure"]["heading"] == pytest.approx(end, abs=0.02)
    losses = played[-1][0].memory["procedure"]["losses"]
    assert losses == pytest.approx([end + (2.3 - end) * 0.6**t for t in range(5)], abs=1e-6)


def test_the_losses_a_pilot_lives_on_are_charged():
    record = list(run(pilot(0.3, 0.8)))[1][1]
    assert total_bytes([t for t in record.transfers if t.kind == "loss"], "up") == 4 * 4


def test_a_pilot_goes_on_from_any_state():
    setting = pilot(1.2, 0.8)
    whole = list(run(setting))
    for state, record in whole[:-1]:
        rest = list(run(setting, state))
        assert [r.chains for _, r in rest] == [r.chains for _, r in whole[record.round + 1 :]]


# ---------------------------------------------------------------- refusals


PILOT = {"use": "adaptive", "pilot_rounds": 5, "required_loss": 0.8}


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"procedure": {"use": "adaptive"}}, r"procedure adaptive: needs a \[signal\]"),
        (
            {"procedure": {"use": "adaptive", "dial": True, "groups": "clusters"}},
            r"needs a \[clustering\]",
        ),
        ({"procedure": {"use": "adaptive", "theta": -1}}, "procedure.theta: -1.0 is out of range"),
        (
            {"procedure": {"use": "adaptive", "epsilon": -1e-6}},
            "procedure.epsilon: -1e-06 is out of range",
        ),
        (
            {"procedure": {"use": "adaptive", "theta_classes": -2}},
            "procedure.theta_classes: -2 is out of range",
        ),
        (
            {"procedure": {"use": "adaptive", "hysteresis": 1.0}},
            "procedure.hysteresis: 1.0 is out of range",
        ),
        (
            {"procedure": {"use": "adaptive", "refresh": -1}},
            "procedure.refresh: -1 is out of range",
        ),
        (
            {"procedure": PILOT},
            "needs the loss of the model a client receives. Set local.report_loss = 'start'",
        ),
        (
            {"procedure": {**PILOT, "dial": True}},
            "procedure.dial: a pilot chooses between parallel and sequential only",
        ),
        ({"procedure": {**PILOT, "pilot_rounds": 2}}, "2 rounds show no trend"),
        ({"procedure": {**PILOT, "required_loss": 0.0}}, "required_loss: 0.0 can never be reached"),
    ],
)
def test_recipes_that_cannot_work_are_refused_before_anything_runs(recipe, message):
    with pytest.raises(RecipeError, match=message):
        resolve(recipe)


def test_losses_that_fall_by_little_have_a_plateau_too():
    assert plateau(0.7 + 0.5 * 0.8 ** np.arange(12)) == pytest.approx(0.7, abs=1e-3)
