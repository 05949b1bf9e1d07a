"""Chains: groups against brute force, the number of chains against omega, and what happens when
a client dies halfway.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedskew.accounting.traffic import total_bytes
from fedskew.errors import RecipeError, RunError
from fedskew.labels.omega import omega, omega_balanced
from fedskew.loop.federation import run, settle
from fedskew.procedure.chains import chains
from fedskew.procedure.groups import Labels, choose_count, deal, fill_greedily, improve_by_swaps
from fedskew.recipe import method_of, resolve
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import Clustering, Population, Signal, View

# 10 clients; clients 2i and 2i+1 hold classes 2i and 2i+1
TWO_OF_TEN = np.kron(np.eye(5, dtype=int), np.full((2, 2), 50))
SIGNAL = {"signal": {"use": "histogram"}}


def view_of(counts, labels=None):
    counts = np.asarray(counts, np.float64)
    sizes = counts.sum(axis=1)
    size = len(counts)
    return View(
        round=1,
        budget=size,
        population=Population(sizes.astype(np.int64)),
        available=np.ones(size, bool),
        loss=np.full(size, np.nan),
        times_selected=np.zeros(size, np.int64),
        last_selected=np.zeros(size, np.int64),
        signal=Signal(counts / sizes[:, None], sizes, "disclosed"),
        clustering=None if labels is None else Clustering(np.asarray(labels)),
    )


def plan(view, seed=0, ids=None, **options):
    return chains(
        np.arange(view.size) if ids is None else ids, view, np.random.default_rng(seed), **options
    )


def worth(view, made):
    """Sum over chains of |q - g|^2, from the counts themselves."""
    counts = view.signal.rows * view.signal.num_examples[:, None]
    shares = [counts[list(chain.clients)].sum(axis=0) for chain in made.chains]
    target = counts.sum(axis=0) / counts.sum()
    return sum(np.square(s / s.sum() - target).sum() for s in shares)


def random_labels(rng, size, classes=6, alpha=0.2):
    rows, weights = (
        rng.dirichlet(np.full(classes, alpha), size),
        rng.integers(10, 90, size).astype(float),
    )
    return Labels(rows, weights, weights @ rows / weights.sum())


# ---------------------------------------------------------------- groups


def all_cuts(size, count):
    """Every way to cut ``size`` clients into ``count`` groups of the sizes that dealing gives.

    By plain enumeration.
    """
    sizes = sorted(np.bincount(deal(size, count)).tolist())
    for assignment in itertools.product(range(count), repeat=size):
        if sorted(np.bincount(assignment, minlength=count).tolist()) == sizes:
            yield np.array(assignment)


@pytest.mark.parametrize(("size", "count"), [(6, 2), (7, 2), (6, 3), (8, 2)])
def test_swaps_come_near_the_best_of_all_cuts(size, count):
    rng, ratios = np.random.default_rng(size * count), []
    for _ in range(8):
        labels = random_labels(rng, size)
        best = min(labels.worth(cut) for cut in all_cuts(size, count))
        found = min(labels.worth(improve_by_swaps(labels, count, rng)) for _ in range(5))
        assert found >= best - 1e-12
        ratios.append(found / best)
    assert np.median(ratios) == pytest.approx(1.0)
    assert max(ratios) < 2


def test_no_exchange_betters_what_swaps_leave(monkeypatch):
    monkeypatch.setattr("fedskew.procedure.groups.WORTHWHILE", 0.0)
    rng = np.random.default_rng(3)
    labels = random_labels(rng, 9)
    cut = improve_by_swaps(labels, 3, rng)
    for i, j in itertools.combinations(range(9), 2):
        other = cut.copy()
        other[[i, j]] = other[[j, i]]
        assert labels.worth(other) >= labels.worth(cut) - 1e-11


def test_greedy_takes_the_client_that_brings_kl_lowest():
    rng = np.random.default_rng(0)
    labels = Labels(np.eye(2)[[0, 0, 1, 1]], np.ones(4), np.array([0.5, 0.5]))
    for _ in range(10):
        cut = fill_greedily(labels, 2, rng)
        assert labels.worth(cut) == 0
        assert cut[0] != cut[1]


def test_swaps_beat_greedy_beats_random_on_average():
    rng, worths = np.random.default_rng(1), {"swap": [], "greedy": [], "random": []}
    for _ in range(60):
        labels = random_labels(rng, 12)
        worths["swap"].append(labels.worth(improve_by_swaps(labels, 3, rng)))
        worths["greedy"].append(labels.worth(fill_greedily(labels, 3, rng)))
        worths["random"].append(labels.worth(rng.permutation(deal(12, 3))))
    means = {name: np.mean(found) for name, found in worths.items()}
    assert means["swap"] < 0.8 * means["greedy"] < 0.8 * means["random"]


@pytest.mark.parametrize("builder", ["swap", "greedy"])
def test_balanced_chains_are_nearer_to_everybody_than_random_ones(builder):
    view = view_of(
        np.random.default_rng(5).multinomial(80, np.full(10, 0.1), 20)
        * TWO_OF_TEN.repeat(2, axis=0)
        + 1
    )
    made = {
        kind: [plan(view, seed, chains=4, groups=kind, builder=builder) for seed in range(30)]
        for kind in ("random", "balanced")
    }
    balanced, random = (
        np.mean([worth(view, p) for p in made[kind]]) for kind in ("balanced", "random")
    )
    assert balanced < 0.5 * random
    assert (
        len({frozenset(frozenset(c.clients) for c in p.chains) for p in made["balanced"]}) > 10
    ), "always the same groups"


def test_two_chains_of_the_afls_clients_hold_every_class():
    view = view_of(TWO_OF_TEN)
    for seed in range(20):
        assert worth(view, plan(view, seed, chains=2, groups="balanced")) == pytest.approx(
            0, abs=1e-12
        )


def test_the_order_inside_a_balanced_chain_is_random():
    view, first = view_of(TWO_OF_TEN), np.zeros(10)
    for seed in range(600):
        for chain in plan(view, seed, chains=2, groups="balanced").chains:
            first[chain.clients[0]] += 1
    assert np.abs(first - 120).max() < 5 * np.sqrt(120)  # each begins a chain in 1 of 5 plans


def test_one_of_every_cluster_in_each_chain():
    labels = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    view = view_of(np.ones((9, 3)), labels)
    seen = set()
    for seed in range(10):
        made = plan(view, seed, chains=3, groups="clusters")
        assert all(sorted(labels[c] for c in chain.clients) == [0, 1, 2] for chain in made.chains)
        seen.add(frozenset(chain.clients for chain in made.chains))
    assert len(seen) > 5


def test_clusters_of_unlike_sizes_are_spread_evenly_and_loose_clients_are_not_lost():
    labels = np.array([0, 0, 0, 0, 0, 1, 1, -1, -1, 2, 2])
    made = plan(view_of(np.ones((11, 2)), labels), chains=3, groups="clusters")
    per_chain = [np.bincount(labels[list(chain.clients)] + 1, minlength=4) for chain in made.chains]
    assert np.ptp(per_chain, axis=0).max() <= 1
    assert sorted(made.clients) == list(range(11))


# ---------------------------------------------------------------- how many


def test_the_largest_number_of_chains_below_theta():
    # groups of 5, 4, 3, 2 of these clients hold up to 10, 8, 6, 4 classes
    view = view_of(TWO_OF_TEN)
    # one pair is enough to be below
    assert len(plan(view, chains=0, groups="balanced", theta_classes=2).chains) == 9
    # 7 chains: 3 pairs of 4 classes and 4 alone, omega near (3 * 6.541 + 4 * 8.888) / 7 = 7.88; 6:
    # near 7.32; theta = 7.698
    assert len(plan(view, chains=0, groups="balanced", theta_classes=3).chains) == 6
    assert len(plan(view, chains=0, groups="balanced", theta=0.5).chains) == 2
    assert len(plan(view, chains=0, groups="random", theta=1e-6).chains) == 1
    assert len(plan(view, chains=0, theta=omega_balanced(2, 10) + 0.01).chains) == 10


def test_its_prediction_is_omega_with_groups_for_devices():
    view = view_of(TWO_OF_TEN)
    made = plan(view, chains=0, groups="balanced", theta=6.6)
    rows = np.stack([view.signal.rows[list(chain.clients)].mean(axis=0) for chain in made.chains])
    assert len(made.chains) == 5
    assert omega(rows) == pytest.approx(omega_balanced(4, 10))


def test_bisection_for_many_clients_asks_few_questions():
    asked = []
    found = choose_count(1000, lambda count: asked.append(count) or count / 100, lambda count: 3.0)
    assert found == (299, 2.99)
    assert len(asked) < 15


# ---------------------------------------------------------------- the ends of the dial


@pytest.mark.parametrize("groups", ["random", "balanced", "clusters"])
def test_one_chain_is_sequential_and_one_per_client_is_parallel(groups):
    from fedskew.procedure.parallel import parallel
    from fedskew.procedure.sequential import sequential

    view, ids = view_of(TWO_OF_TEN, np.arange(10) % 3), np.array([7, 2, 9, 4])
    for relay in ("server", "d2d"):
        one = plan(view, 3, ids, chains=1, groups=groups, relay=relay)
        assert one == sequential(ids, view, np.random.default_rng(3), relay=relay)
        assert plan(view, 3, ids, chains=4, groups=groups, relay=relay) == parallel(
            ids, view, np.random.default_rng(3)
        )


def test_fewer_clients_than_chains_get_one_each():
    assert [
        c.clients for c in plan(view_of(TWO_OF_TEN), ids=np.array([5, 1]), chains=4).chains
    ] == [(5,), (1,)]


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            {"procedure": {"use": "chains", "groups": "balanced"}},
            r"procedure chains: needs a \[signal\]",
        ),
        ({"procedure": {"use": "chains", "chains": 0}}, r"procedure chains: needs a \[signal\]"),
        (
            {"procedure": {"use": "chains", "groups": "clusters"}, **SIGNAL},
            r"procedure chains: needs a \[clustering\]",
        ),
        ({"procedure": {"use": "chains", "chains": 11}}, "11 chains for 10 clients a round"),
        (
            {"procedure": {"use": "chains", "chains": 9}, "data": {"clients": 8}},
            "9 chains for 8 clients a round",
        ),
        ({"procedure": {"use": "chains", "chains": -1}}, "procedure.chains: -1 is out of range"),
        ({"procedure": {"use": "chains", "theta": 0}}, "procedure.theta: 0.0 is out of range"),
        ({"procedure": {"use": "chains", "epsilon": 0}}, "procedure.epsilon: 0.0 is out of range"),
        (
            {"procedure": {"use": "chains", "epsilon": 1.0}},
            "procedure.epsilon: 1.0 is out of range",
        ),
        ({"procedure": {"use": "chains", "groups": "fair"}}, "procedure.groups: 'fair' is not"),
    ],
)
def test_recipes_that_cannot_work_are_refused_before_anything_runs(recipe, message):
    with pytest.raises(RecipeError, match=message):
        resolve({"run": {"clients_per_round": 10}, **recipe})


@pytest.mark.parametrize("use", ["sequential", "chains", "adaptive"])
@pytest.mark.parametrize("server", ["scaffold", "dyn"])
def test_rules_with_a_correction_per_client_refuse_chains(use, server):
    with pytest.raises(
        RecipeError,
        match=f"aggregation {server}: has no meaning where clients train on each other's models",
    ):
        resolve({"procedure": {"use": use}, "aggregation": {"use": server}, **SIGNAL})
    resolve({"procedure": {"use": "parallel"}, "aggregation": {"use": server}, **SIGNAL})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"theta": 11.0}, "theta: 11 is out of range: with 10 classes .* omega is at most 10.131"),
        ({"epsilon": 0.2}, "epsilon: 0.2"),
    ],
)
def test_a_level_that_cannot_be_reached_is_refused(options, message):
    with pytest.raises(RecipeError, match=message):
        plan(view_of(TWO_OF_TEN), chains=0, **options)


def test_without_what_it_needs_it_says_so():
    view = View(
        1,
        2,
        Population(np.array([4, 4])),
        np.ones(2, bool),
        np.zeros(2),
        np.zeros(2, int),
        np.zeros(2, int),
    )
    with pytest.raises(RunError, match="needs label proportions"):
        plan(view, chains=0)
    with pytest.raises(RunError, match="no clustering"):
        chains(
            np.arange(3),
            view_of(np.ones((3, 2))),
            np.random.default_rng(0),
            chains=2,
            groups="clusters",
        )


# --------------------------------------------- in the loop: a client dies halfway


class Dying(ScriptedRuntime):
    """Every client adds its number plus one; those who are to die never answer, or with rubbish."""

    def __init__(self, dying, sent):
        self.dying, self.sent, self.asked = dying, sent, []
        super().__init__(np.full((6, 2), 5), script=self.reply)

    def reply(self, client, round, model):
        self.asked.append(client)
        if client in self.dying:
            return (
                Reply(model * np.float32(np.nan), 0.5, 0.1, 1, 10)
                if self.sent
                else Reply(None, failure="died", sent=False)
            )
        return Reply(model + np.float32(client + 1), 0.5, 0.1, 1, 10)


def one_round(dying, *, broken, relay="server", chains=2, sent=False):
    recipe = {
        "procedure": {"use": "chains", "chains": chains, "broken": broken, "relay": relay},
        "run": {"rounds": 1, "clients_per_round": 6, "min_ok": 0},
    }
    runtime = Dying(dying, sent)
    *_, (state, record) = run(settle(method_of(resolve(recipe)), runtime, 0))
    moved = float((state.models[0] - runtime.initial(0))[0])
    transfers = {
        way: total_bytes([t for t in record.transfers if t.kind == "model"], way) // 24
        for way in ("down", "up", "d2d")
    }
    return moved, record, transfers, runtime.asked


def chains_of_seed_0():
    return [chain.clients for chain in one_round((), broken="skip")[1].chains]


@pytest.mark.parametrize("relay", ["server", "d2d"])
def test_skip_goes_on_without_the_client(relay):
    first, second = chains_of_seed_0()
    moved, record, _, asked = one_round({first[1]}, broken="skip", relay=relay)
    ends = [first[0] + 1 + first[2] + 1, sum(second) + 3]
    assert moved == pytest.approx(np.average(ends, weights=[20, 30]), abs=1e-5)
    assert sorted(asked) == list(range(6))
    assert list(record.failures) == [first[1]]


@pytest.mark.parametrize("relay", ["server", "d2d"])
def test_drop_gives_the_chain_up(relay):
    first, second = chains_of_seed_0()
    moved, record, _, asked = one_round({first[1]}, broken="drop", relay=relay)
    assert moved == pytest.approx(sum(second) + 3, abs=1e-5)
    assert first[2] not in asked
    assert list(record.failures) == [first[1]]


@pytest.mark.parametrize(
    ("place", "broken", "sent", "relay", "expected"),
    [
        (None, "skip", False, "d2d", {"down": 1, "up": 1, "d2d": 5}),
        # the server begins again with the second
        (0, "skip", False, "d2d", {"down": 2, "up": 1, "d2d": 4}),
        (2, "skip", False, "d2d", {"down": 1, "up": 1, "d2d": 5}),  # its predecessor sends past it
        (5, "skip", False, "d2d", {"down": 1, "up": 1, "d2d": 5}),
        (2, "skip", True, "d2d", {"down": 1, "up": 1, "d2d": 6}),  # the rubbish travelled too
        (5, "skip", True, "d2d", {"down": 1, "up": 2, "d2d": 5}),
        (0, "drop", False, "d2d", {"down": 1, "up": 0, "d2d": 0}),
        (2, "drop", False, "d2d", {"down": 1, "up": 0, "d2d": 2}),  # no end, no upload
        (2, "drop", True, "d2d", {"down": 1, "up": 0, "d2d": 3}),
        (5, "drop", True, "d2d", {"down": 1, "up": 1, "d2d": 5}),
        (2, "skip", False, "server", {"down": 6, "up": 5, "d2d": 0}),
        (2, "skip", True, "server", {"down": 6, "up": 6, "d2d": 0}),
        (2, "drop", False, "server", {"down": 3, "up": 2, "d2d": 0}),
    ],
)
def test_what_a_broken_chain_costs(place, broken, sent, relay, expected):
    (order,) = (chain.clients for chain in one_round((), broken="skip", chains=1)[1].chains)
    dying = () if place is None else (order[place],)
    assert one_round(dying, broken=broken, relay=relay, chains=1, sent=sent)[2] == expected


def test_everybody_dies():
    for broken, down in (("skip", 6), ("drop", 2)):
        moved, _, transfers, _ = one_round(set(range(6)), broken=broken, relay="d2d")
        assert moved == 0
        assert transfers == {"down": down, "up": 0, "d2d": 0}


def test_chains_are_not_fedavg():
    moved = {use: one_of(use) for use in ("parallel", "sequential", "chains")}
    assert len(set(moved.values())) == 3


def one_of(use):
    recipe = {"procedure": {"use": use}, "run": {"rounds": 1, "clients_per_round": 6}}
    runtime = Dying((), False)
    *_, (state, _) = run(settle(method_of(resolve(recipe)), runtime, 0))
    return float((state.models[0] - runtime.initial(0))[0])
