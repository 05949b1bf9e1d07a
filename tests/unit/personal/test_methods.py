"""CFL, IFCA and FedSoft on two planted groups of clients, and their parts by hand."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedskew import run
from fedskew.errors import RecipeError, RunError
from fedskew.loop.federation import run as play
from fedskew.loop.federation import settle
from fedskew.procedure.cfl import CFL
from fedskew.procedure.fedsoft import FedSoft
from fedskew.procedure.ifca import IFCA, best_set
from fedskew.recipe import method_of, resolve
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import Aftermath, Answer, LocalJob, Plan, Population, View

cfl_module, fedsoft_module = (
    import_module(f"fedskew.procedure.{name}") for name in ("cfl", "fedsoft")
)
K = 12
GROUPS = np.arange(K) % 2


def planted(seed=0, n=60, classes=3):
    """Clients of two groups see the same inputs; the second's labels are turned by one class."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, 6)) * 2.0
    owners = np.repeat(np.arange(K), n)
    truth = rng.integers(classes, size=K * n)
    x = (centres[truth] + rng.normal(size=(K * n, 6))).astype(np.float32)
    return x, (truth + GROUPS[owners]) % classes, owners


def play_planted(procedure, *, rounds=30, clients_per_round=K, seed=0, **settings):
    x, y, owners = planted()
    recipe = {
        "model": {"use": "logistic"},
        "local": {"epochs": 1, "batch": 20, "lr": 0.1},
        "data": {"client_test": "split", "clients": K},
        "procedure": procedure,
        "run": {"rounds": rounds, "clients_per_round": clients_per_round, "evaluate_every": 5},
    }
    return run(recipe, data=(x, y), clients=owners, seed=seed, workers=1, settings=settings)


def same_groups(slots):
    return (
        all(len({slots[i] for i in np.flatnonzero(g == GROUPS)}) == 1 for g in (0, 1))
        and slots[0] != slots[1]
    )


# ---------------------------------------------------------------- CFL


@pytest.mark.parametrize("clients_per_round", [K, 6])
def test_cfl_splits_exactly_once_into_the_two_groups(clients_per_round):
    procedure = {"use": "cfl", "eps_mode": "relative", "eps2": 0.8, "min_round": 10}
    result = play_planted(procedure, rounds=40, clients_per_round=clients_per_round)
    assert len(result.models) == 2
    assert same_groups(result.clients["slot"])
    assert result.fairness.weighted > 0.9
    one = play_planted({"use": "parallel"}, rounds=40)
    assert one.fairness.weighted < 0.7, "one model cannot serve both groups"


def test_cfl_with_the_thresholds_of_paper_004_never_splits():
    result = play_planted({"use": "cfl", "eps1": 1e-5, "eps2": 0.1, "min_round": 5})
    plain = play_planted({"use": "parallel"})
    assert result.models.tobytes() == plain.models.tobytes()


def aftermath(updates, clients, *, round=30, home=None, examples=None):
    updates = np.asarray(updates, np.float32)
    home = np.zeros(6, np.int64) if home is None else np.asarray(home)
    models = np.arange(1 + home.max())[:, None] + np.zeros((1, updates.shape[1]))
    received = models[home[clients]]
    sizes = np.ones(len(clients), int) if examples is None else examples
    return Aftermath(
        round,
        Plan(()),
        models,
        models,
        home,
        clients,
        home[clients],
        received,
        received + updates,
        sizes,
        sizes * 0.5,
        updates.shape[1],
    )


LEFT_RIGHT = [[1.0, 0.1], [-1.0, 0.1], [1.0, -0.1], [-1.0, -0.1]]


def test_cfl_splits_on_the_norm_of_the_mean_not_the_mean_of_norms():
    models, home, memory = CFL(eps1=0.4, eps2=0.9).after({}, aftermath(LEFT_RIGHT, [0, 1, 2, 3]))
    assert len(models) == 2
    assert np.array_equal(models[0], models[1]), "children inherit the model"
    assert home.tolist() == [0, 1, 0, 1, 0, 0], (
        "those never seen stay with the larger part, the first among equals"
    )
    assert memory["home"].tolist() == home.tolist()


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ("too early", {"min_round": 30}),
        ("still moving", {"eps1": 0.0}),
        ("everybody has arrived", {"eps2": 5.0}),
        ("not opposed enough", {"gamma": 1.0}),
        ("no scale yet", {"eps_mode": "relative"}),
    ],
)
def test_cfl_does_not_split_when(change, options):
    options = {"eps1": 0.4, "eps2": 0.9, **options}
    models, home, _ = CFL(**options).after({}, aftermath(LEFT_RIGHT, [0, 1, 2, 3]))
    assert len(models) == 1, change
    assert not home.any()


def test_cfl_needs_more_than_two_members():
    seen = aftermath(LEFT_RIGHT[:2], [0, 1], home=[0, 0, 1, 1, 1, 1])
    assert len(CFL(eps2=0.9).after({}, seen)[0]) == 2


def test_three_members_are_enough_for_cfl():
    seen = aftermath([[1.0, 0.0], [-1.0, 0.1], [-1.0, -0.1]], [0, 1, 2], home=[0, 0, 0, 1, 1, 1])
    assert CFL(eps1=0.4, eps2=0.9).after({}, seen)[1].tolist() == [0, 2, 2, 1, 1, 1]


def test_cfl_weights_the_mean_by_examples():
    heavy = aftermath(LEFT_RIGHT, [0, 1, 2, 3], examples=np.array([97, 1, 1, 1]))
    assert len(CFL(eps2=0.9).after({}, heavy)[0]) == 1
    assert len(CFL(eps2=0.9, weights="uniform").after({}, heavy)[0]) == 2


def test_cfl_sends_absent_members_where_their_last_update_points():
    memory = CFL(eps2=0.9).after({}, aftermath([[-3.0, 0.0], [2.0, 0.0]], [4, 5], round=3))[2]
    _, home, _ = CFL(eps2=0.9).after(memory, aftermath(LEFT_RIGHT, [0, 1, 2, 3]))
    assert home.tolist() == [0, 1, 0, 1, 1, 0]
    forgetful = {"cache": "none", "eps2": 0.9}
    memory = CFL(**forgetful).after({}, aftermath([[-3.0, 0.0], [2.0, 0.0]], [4, 5], round=3))[2]
    assert CFL(**forgetful).after(memory, aftermath(LEFT_RIGHT, [0, 1, 2, 3]))[1].tolist() == [
        0,
        1,
        0,
        1,
        0,
        0,
    ]


def test_cfl_sends_members_without_an_update_to_the_larger_part_even_if_it_is_the_second():
    options = {"eps1": 0.6, "eps2": 0.9}
    still = aftermath([[0.0, 0.0]], [4], round=3)  # its last update says nothing
    memory = CFL(**options).after({}, still)[2]
    one_against_three = [[1.0, 0.0], [-1.0, 0.1], [-1.0, 0.0], [-1.0, -0.1]]
    _, home, _ = CFL(**options).after(memory, aftermath(one_against_three, [0, 1, 2, 3]))
    assert home.tolist() == [0, 1, 1, 1, 1, 1]


def test_cfl_relative_thresholds_are_multiples_of_the_early_norm():
    memory = {}
    for t in (1, 2, 3, 4, 5):
        memory = CFL(eps_mode="relative").after(
            memory, aftermath([[0.1 * t, 0.0]] * 3, [0, 1, 2], round=t)
        )[2]
    # median 0.35: eps1 0.14, eps2 0.56
    assert memory["norms"] == pytest.approx([0.2, 0.3, 0.4, 0.5])
    options = {"eps_mode": "relative", "eps1": 0.4, "eps2": 1.6}
    assert len(CFL(**options).after(memory, aftermath(LEFT_RIGHT, [0, 1, 2, 3]))[0]) == 2
    small = 0.5 * np.array(LEFT_RIGHT)
    assert len(CFL(**options).after(memory, aftermath(small, [0, 1, 2, 3]))[0]) == 1, (
        "0.50 is not above 0.56"
    )


def test_cfl_division_agrees_with_scikit_learn():
    from sklearn.cluster import AgglomerativeClustering

    for seed in range(10):
        updates = np.random.default_rng(seed).normal(size=(15, 4))
        cosines = cfl_module.cosine_matrix(updates)
        tree = AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage="complete").fit(
            -cosines
        )
        assert (cfl_module.bipartition(cosines) == (tree.labels_ != tree.labels_[0])).all()


def complete_linkage_divisions(distances):
    """Every division in two that complete linkage allows, whichever of equal distances it takes."""

    def apart(pair):
        return max(distances[i, j] for i in pair[0] for j in pair[1])

    def divide(groups):
        if len(groups) == 2:
            return {frozenset(groups)}
        pairs = list(combinations(sorted(groups, key=min), 2))
        least = min(map(apart, pairs))
        tied = [pair for pair in pairs if apart(pair) == least]
        return set().union(*(divide((groups - {a, b}) | {a | b}) for a, b in tied))

    return divide(frozenset(frozenset([i]) for i in range(len(distances))))


@settings(deadline=None)
@given(st.integers(3, 6), st.data())
def test_cfl_divides_as_complete_linkage_may_when_distances_tie(n, data):
    pairs = n * (n - 1) // 2
    values = data.draw(st.lists(st.sampled_from([-1, 0, 0.5, 1]), min_size=pairs, max_size=pairs))
    half = np.eye(n) / 2
    half[np.triu_indices(n, 1)] = values
    cosines = half + half.T
    second = cfl_module.bipartition(cosines)
    assert not second[0]
    parts = frozenset(frozenset(np.flatnonzero(second == part).tolist()) for part in (0, 1))
    assert parts in complete_linkage_divisions(1 - cosines)


@pytest.mark.parametrize("copies", [2, 3])
def test_cfl_never_divides_twins(copies):
    for turn in np.random.default_rng(0).permuted(np.tile(np.arange(4 * copies), (20, 1)), axis=1):
        kinds = np.tile(np.arange(4), copies)[turn]
        second = cfl_module.bipartition(cfl_module.cosine_matrix(np.eye(4)[kinds]))
        assert all(len(set(second[kinds == kind].tolist())) == 1 for kind in range(4))
        assert second.any()


def test_cfl_splits_three_pairs_that_pull_three_ways():
    ways = np.eye(3)[[0, 1, 2, 0, 1, 2]]
    models, home, _ = CFL(eps1=0.6, eps2=0.9).after({}, aftermath(ways, np.arange(6)))
    assert len(models) == 2
    assert (home[:3] == home[3:]).all()


def test_short_updates_have_the_cosines_of_long_ones():
    updates = np.array([[0.1, 0.0], [0.2, 0.2], [0.0, 30.0]])
    assert cfl_module.cosine_matrix(updates) == pytest.approx(
        cfl_module.cosine_matrix(updates * 100)
    )
    assert cfl_module.cosine_matrix(updates)[0, 1] == pytest.approx(np.sqrt(0.5))


def test_cfl_of_identical_updates_does_not_split():
    seen = aftermath([[0.0, 0.0]] * 4, [0, 1, 2, 3])
    assert len(CFL(eps1=1.0, eps2=-1.0).after({}, seen)[0]) == 2, (
        "zero updates have cosine 0: legal, if asked for"
    )
    same = aftermath([[1.0, 0.0]] * 4, [0, 1, 2, 3])
    assert len(CFL(eps1=2.0, eps2=0.5).after({}, same)[0]) == 1


# ---------------------------------------------------------------- IFCA


def test_ifca_with_restarts_recovers_the_groups():
    result = play_planted({"use": "ifca", "models": 2, "restarts": 3, "trial_rounds": 2}, rounds=30)
    assert same_groups(result.clients["slot"])
    assert result.fairness.weighted > 0.9
    assert result.models.shape[0] == 6


def test_ifca_sends_every_model_to_every_selected_client():
    result = play_planted(
        {"use": "ifca", "models": 3, "restarts": 1}, rounds=2, clients_per_round=4
    )
    size = result.layout.bytes
    for record in result.rounds[1:]:
        ways = {}
        for t in record.transfers:
            ways[t.direction, t.kind] = ways.get((t.direction, t.kind), 0) + t.bytes
        assert ways == {
            ("down", "model"): 4 * 3 * size,
            ("up", "loss"): 4 * 3 * 4,
            ("up", "model"): 4 * size,
        }


def test_ifca_tries_one_set_after_the_other_then_keeps_the_best():
    result = play_planted({"use": "ifca", "models": 2, "restarts": 2, "trial_rounds": 2}, rounds=7)
    used = [sorted({chain.slot // 2 for chain in record.chains}) for record in result.rounds[1:]]
    assert used[:4] == [[0], [0], [1], [1]]
    assert used[4] == used[5] == used[6]
    assert len(used[4]) == 1


def test_ifca_prefers_the_set_with_the_lowest_mean_of_lowest_losses():
    assert best_set(np.array([[0.9, 0.1, 0.5, 0.5], [0.9, 0.1, 0.5, 0.5]]), 2) == 0
    assert best_set(np.array([[0.9, 0.7, 0.5, 0.5], [np.inf, np.inf, 0.5, 0.5]]), 2) == 1


def test_ifca_goes_on_with_the_set_that_serves_best_and_clients_live_there():
    nobody, ids = np.zeros(4, np.int64), np.array([0, 2])
    view = View(
        5, 2, Population(np.full(4, 5)), np.ones(4, bool), np.full(4, np.nan), nobody, nobody
    )
    options = {"models": 2, "restarts": 2, "trial_rounds": 2}
    rng = np.random.default_rng(0)
    ask, memory = IFCA(**options).plan({}, ids, view, rng)
    assert ask.slots.tolist() == [0, 1, 2, 3]
    assert IFCA(**options).rehome(memory, 4).tolist() == [0, 1, 2, 3]
    # the second set divides the clients, the first cannot
    losses = np.array([[0.5, 0.5, 0.9, 0.1], [0.5, 0.5, 0.1, 0.9]])
    plan, memory = IFCA(**options).plan(
        memory, ids, replace(view, answers=(Answer(ask, losses),)), rng
    )
    assert [chain.slot for chain in plan.chains] == [3, 2]
    assert IFCA(**options).rehome(memory, 4).tolist() == [2, 3]
    ask, _ = IFCA(**options).plan(memory, ids, replace(view, round=6), rng)
    assert ask.slots.tolist() == [2, 3]


def test_ifca_lives_by_training_loss_never_by_test_loss():
    asked = []

    class Watching(ScriptedRuntime):
        def score(self, order):
            asked.append((order.which, len(order.clients)))
            return super().score(order)

    recipe = resolve(
        {
            "procedure": {"use": "ifca", "models": 2, "restarts": 1},
            "run": {"rounds": 1, "clients_per_round": 2},
        }
    )
    list(play(settle(method_of(recipe), Watching(np.full((5, 2), 4)), 0)))
    assert asked == [("train", 10), ("test", 5), ("train", 4), ("train", 10), ("test", 5)]


def test_ifca_options_are_checked():
    with pytest.raises(RecipeError, match="whole numbers from 1"):
        play_planted({"use": "ifca", "models": 0}, rounds=1)
    assert len(IFCA(models=1, restarts=1).begin(lambda i: np.full(2, i), 4)) == 1


def test_defaults_are_those_of_the_papers():
    assert FedSoft() == FedSoft(centres=5, strength=0.1, estimate_every=2, draw="importance")
    assert IFCA() == IFCA(models=2, restarts=3, trial_rounds=3)


# ---------------------------------------------------------------- FedSoft


class Identical(ScriptedRuntime):
    def initial(self, seed):
        return np.ones(6, np.float32)


def test_fedsoft_with_identical_first_models_raises():
    recipe = resolve({"procedure": {"use": "fedsoft", "centres": 2}, "run": {"rounds": 1}})
    with pytest.raises(RunError, match="never separate"):
        list(play(settle(method_of(recipe), Identical(np.full((5, 2), 4)), 0)))


def test_fedsoft_personalises():
    result = play_planted({"use": "fedsoft", "centres": 2, "strength": 0.1}, rounds=30)
    assert result.models.shape[0] == 2 + K
    assert result.clients["slot"] == list(range(2, 2 + K))
    assert result.fairness.weighted > 0.85


def test_fedsoft_pulls_clients_to_the_centre_that_explains_their_data():
    """What clients report decides: those that centre 1 explains are drawn for it and pulled to
    it, the others to centre 0.
    """

    class Reporting(ScriptedRuntime):
        def best_fit(self, clients, models):
            return np.eye(2)[GROUPS[np.asarray(clients)]]

    procedure = {"use": "fedsoft", "centres": 2, "per_centre": 3, "strength": 1.0}
    recipe = resolve({"procedure": procedure, "run": {"rounds": 2, "clients_per_round": 6}})
    *_, (state, _) = play(settle(method_of(recipe), Reporting(np.full((K, 2), 4)), 0))
    memory = state.memory["procedure"]
    assert np.array_equal(memory["shares"].argmax(axis=1), GROUPS)
    assert memory["shares"].min() == pytest.approx(1e-4, rel=1e-3)
    assert (memory["drawn"].sum(axis=1) == 3).all()
    assert all(set(GROUPS[drawn]) == {centre} for centre, drawn in enumerate(memory["drawn"]))


def test_fedsoft_pull_is_the_gradient_of_its_penalty():
    """lambda sum_s u_ks (w - c_s) must equal prox_mu (w - w_k) + correction at any w."""
    rng = np.random.default_rng(0)
    models, w = rng.normal(size=(2 + 3, 4)).astype(np.float32), rng.normal(size=4)
    shares = fedsoft_module.floored(np.array([[0.3, 0.7], [1.0, 0.0], [0.5, 0.5]]), 1e-4)
    job = FedSoft(strength=0.2).job(LocalJob())
    added = FedSoft(centres=2, strength=0.2).corrections({"shares": shares}, [1, 2], models, 4)
    for row, client in enumerate((1, 2)):
        wanted = 0.2 * sum(shares[client, s] * (w - models[s]) for s in (0, 1))
        assert job.prox_mu * (w - models[2 + client]) + added[row] == pytest.approx(
            wanted, abs=1e-6
        )


def test_fedsoft_strong_pull_brings_clients_to_their_centres():
    loose = play_planted(
        {"use": "fedsoft", "centres": 2, "strength": 0.0, "draw": "given"}, rounds=10
    )
    tight = play_planted(
        {"use": "fedsoft", "centres": 2, "strength": 5.0, "draw": "given"}, rounds=10
    )

    def spread(result):
        away = np.linalg.norm(result.models[2:, None] - result.models[None, :2], axis=2)
        return float(away.min(axis=1).mean())

    assert spread(tight) < 0.5 * spread(loose)


def test_fedsoft_is_charged_by_methods_9_1():
    result = play_planted({"use": "fedsoft", "centres": 3, "per_centre": 2}, rounds=3)
    s = result.layout.bytes
    for record in result.rounds[1:]:
        drawn = len(record.chains)
        down = sum(t.bytes for t in record.transfers if t.direction == "down")
        up = {t.kind: t.bytes for t in record.transfers if t.direction == "up"}
        estimating = record.round % 2 == 1
        assert down == drawn * 3 * s + (K * 3 * s if estimating else 0)
        assert up == {"model": drawn * s, **({"loss": K * 4 * 3} if estimating else {})}
        assert 2 <= drawn <= 6


def test_fedsoft_centres_are_means_of_those_drawn_for_them():
    memory = {
        "shares": np.full((4, 2), 0.5),
        "drawn": np.array([[True, True, False, False], [False, False, False, False]]),
        "examples": np.array([1, 3, 1, 1]),
    }
    models = np.zeros((6, 2), np.float32)
    models[1] = 9
    returned = np.array([[1, 1], [3, 3]])
    seen = Aftermath(
        1,
        Plan(()),
        models,
        models,
        2 + np.arange(4),
        [0, 1],
        [2, 3],
        models[:2],
        returned,
        [1, 3],
        [0, 0],
        2,
    )
    after, _, _ = FedSoft(centres=2).after(memory, seen)
    assert after.tolist() == [[2, 2], [9, 9], [1, 1], [3, 3], [0, 0], [0, 0]]
    everyone = {**memory, "drawn": np.ones((2, 4), bool)}
    assert FedSoft(centres=2, draw="given").after(everyone, seen)[0][0].tolist() == [
        2.5,
        2.5,
    ]


def test_fedsoft_draws_by_importance():
    rng = np.random.default_rng(0)
    drawn = fedsoft_module.draw_clients(np.array([[1.0, 0.0], [0.0, 5.0], [1.0, 5.0]]), 2, rng)
    assert drawn.tolist() == [[True, False, True], [False, True, True]]
    many = [fedsoft_module.draw_clients(np.array([[9.0], [1.0]]), 1, rng)[0, 0] for _ in range(400)]
    assert np.mean(many) == pytest.approx(0.9, abs=0.075)  # five standard deviations


@pytest.mark.parametrize(
    ("budget", "per_centre", "drawn"), [(1, 0, 1), (3, 0, 1), (6, 0, 3), (6, 2, 2)]
)
def test_fedsoft_divides_the_budget_among_its_centres(budget, per_centre, drawn):
    view = View(
        round=2,
        budget=budget,
        population=Population(np.full(8, 10)),
        available=np.ones(8, bool),
        loss=np.full(8, np.nan),
        times_selected=np.zeros(8),
        last_selected=np.zeros(8),
    )
    rule = FedSoft(centres=2, per_centre=per_centre)
    memory = {"shares": np.full((8, 2), 0.5)}
    plan, kept = rule.plan(memory, np.arange(budget), view, np.random.default_rng(0))
    assert kept["drawn"].sum(axis=1).tolist() == [drawn, drawn]
    assert len(plan.chains) == kept["drawn"].any(axis=0).sum()


def test_shares_of_examples_go_to_the_model_with_the_lowest_loss():
    from fedskew.experiment.world import factory_of, shards_of, store_of
    from fedskew.runtime.local.runtime import LocalRuntime

    resolved = resolve(
        {"data": {"use": "custom", "client_test": "split"}, "model": {"use": "logistic"}}
    )
    from fedskew.data import from_arrays

    x = np.array([[1.0], [2.0], [-1.0], [3.0]] * 5, np.float32)
    data = from_arrays(x, np.zeros(20, int), num_classes=2, mean=0.0, std=1.0)
    shards = shards_of(resolved, data, 0, np.array([0, 0, 0, 1] * 5))
    with LocalRuntime(store_of(shards), factory_of(resolved, data), workers=1) as runtime:
        # class 0 where x > 0 | x < 0
        up, down = np.array([1, -1, 0, 0], np.float32), np.array([-1, 1, 0, 0], np.float32)
        shares = runtime.best_fit([1, 0], np.stack([up, down, up]))
    own = shards.x[shards.train.order[shards.train.offsets[0] : shards.train.offsets[1]], 0]
    assert shares[0].tolist() == [1, 0, 0], "equal losses: the first of them"
    assert shares[1] == pytest.approx([(own > 0).mean(), (own < 0).mean(), 0])


def test_a_failed_client_keeps_its_own_model():
    def script(client, round, model):
        return Reply(None, failure="gone") if client == 0 else Reply(model + 1, 0.5, 0.1, 1, 4)

    recipe = resolve(
        {
            "procedure": {"use": "fedsoft", "centres": 2, "draw": "given"},
            "run": {"rounds": 1, "clients_per_round": 4},
        }
    )
    setting = settle(method_of(recipe), ScriptedRuntime(np.full((4, 2), 2), script=script), 0)
    *_, (state, _) = play(setting)
    assert np.array_equal(state.models[2], setting.initial)
    assert np.allclose(state.models[3], setting.initial + 1)


# ---------------------------------------------------------------- resume


@pytest.mark.parametrize("name", ["cfl", "ifca", "fedsoft", "local_only"])
def test_memory_is_all_in_the_state(name):
    """Going on from any state, as after a kill, gives the same rest."""
    from fedskew.records import checkpoint_bytes

    recipe = resolve({"procedure": {"use": name}, "run": {"rounds": 8, "clients_per_round": 3}})
    setting = settle(method_of(recipe), ScriptedRuntime(np.full((6, 2), 4)), 0)
    whole = list(play(setting))
    assert checkpoint_bytes(whole[4][0], "mark")
    rest = list(play(setting, whole[4][0]))
    assert rest[-1][0].models.tobytes() == whole[-1][0].models.tobytes()
    assert [r.chains for _, r in rest] == [r.chains for _, r in whole[5:]]
