"""What any aggregation rule can be given: bounded shares, buckets, verified replies."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedskew
from fedskew.aggregation.shares import bounded
from fedskew.errors import RecipeError
from fedskew.loop.federation import run, settle
from fedskew.loop.guard import Guard, bucketed
from fedskew.recipe import fingerprint, load, method_of, override, resolve
from fedskew.records.rounds import line_of, record_of
from fedskew.runtime.replies import Reply, collect
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import Auxiliary, Ends, Layout

# ---------------------------------------------------------------- shares


@pytest.mark.parametrize("share", [0.25, 0.3, 0.5, 0.85])
def test_bounded_is_the_least_cut_that_keeps_everybody_below_the_share(share):
    rng = np.random.default_rng(0)
    for _ in range(200):
        sizes = np.maximum(1, (10 ** rng.uniform(0, 2.5, size=rng.integers(4, 9))).astype(int))
        cut = bounded(sizes, share)
        most = int(sizes.max())
        while most > 1 and most > share * np.minimum(sizes, most).sum() + 1e-9:
            most -= 1
        assert cut.tolist() == np.minimum(sizes, most).tolist()


def test_a_claim_of_a_million_million_examples_weighs_no_more_than_the_bound():
    cut = bounded(np.array([70, 10**12, 80, 90, 60]), 0.4)
    assert cut.tolist() == [70, 200, 80, 90, 60]
    two = bounded(np.array([70, 10**12, 10**15, 90, 60]), 0.4)
    assert two.max() / two.sum() <= 0.4
    assert two[1] == two[2] == 440


def test_the_bound_is_never_below_an_equal_share_and_wide_among_few():
    assert Guard(max_share=0.3).share_of(2) == 0.5
    assert Guard(max_share=0.3).share_of(10) == 0.3
    assert Guard().share_of(5) == 0.85
    assert Guard().share_of(4) == 0.99
    assert Guard(max_share=1.0).share_of(7) == 1.0
    with pytest.raises(RecipeError, match="not a share"):
        Guard(max_share=1.5)


class Liars(ScriptedRuntime):
    """Client 0 moves every number by 1 and says it has 10^9 examples, the most the border lets
    pass; the others stay.
    """

    def train(self, order):
        replies = []
        for client, start in zip(order.clients, order.start, strict=True):
            lies = int(client) == 0
            moved = order.models[start] + np.float32(lies)
            replies.append(Reply(moved, 0.5, 0.01, 3, 10**9 if lies else 10))
        return collect(replies, order.models.shape[1])


def one_round(runtime, **settings):
    changes = {"run.clients_per_round": 5, "run.rounds": 1, "data.clients": 5, **settings}
    setting = settle(method_of(resolve(override({}, changes))), runtime, seed=0)
    return list(run(setting))[-1]


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_liar_counts_for_its_bound_and_the_record_says_so(share):
    runtime = Liars(np.full((5, 2), 5))
    first = runtime.initial(0)
    state, record = one_round(runtime, **{"aggregation.max_share": share})
    weight = float((state.models[0] - first).mean())
    assert weight == pytest.approx(share or 0.85, abs=0.01)
    assert list(record.notes) == [0]
    assert "not 1000000000" in record.notes[0]
    assert record_of(line_of(record)).notes == record.notes
    unbounded, quiet = one_round(runtime, **{"aggregation.max_share": 1.0})
    assert float((unbounded.models[0] - first).mean()) == pytest.approx(1)
    assert not quiet.notes
    assert "notes" not in json.loads(line_of(quiet))


def test_in_chains_a_liar_brings_its_chain_no_more_than_its_bound():
    """Two chains; the liar's weighs its own bounded 40 and what its partners really hold."""
    changes = {
        "procedure.use": "chains",
        "procedure.chains": 2,
        "procedure.groups": "random",
        "aggregation.max_share": 0.5,
    }
    runtime = Liars(np.full((5, 2), 5))
    first = runtime.initial(0)
    state, record = one_round(runtime, **changes)
    partners = next(len(c.clients) for c in record.chains if 0 in c.clients) - 1
    weight = float((state.models[0] - first).mean())
    assert weight == pytest.approx((40 + 10 * partners) / 80, abs=1e-4)


def test_recipes_that_say_nothing_of_it_keep_their_fingerprint():
    plain = resolve(load("fedavg"))
    older = {**plain, "aggregation": {"use": "mean", "weights": "examples"}}
    assert fingerprint(plain) == fingerprint(older)
    changed = resolve(override(load("fedavg"), {"aggregation.max_share": 0.3}))
    assert fingerprint(changed) != fingerprint(plain)


# ---------------------------------------------------------------- buckets

LAYOUT = Layout.of([("w", (2,), "weight"), ("seen", (), "counter")])


def ends(values):
    rows = np.array([[v, v, i] for i, v in enumerate(values)], np.float32)
    n = len(rows)
    mixes = np.eye(2)[np.arange(n) % 2]
    return Ends(rows, np.arange(1, n + 1), [5] * n, LAYOUT, np.arange(n), 20, mixes=mixes)


def test_buckets_are_means_of_everybody_once():
    given = ends([1, 2, 4, 8, 16])
    found = bucketed(given, 2, np.random.default_rng(0))
    assert len(found.params) == 3
    assert found.num_examples.sum() == 15
    order = np.random.default_rng(0).permutation(5)
    groups = [sorted(order[i : i + 2]) for i in (0, 2, 4)]
    values = np.array([1, 2, 4, 8, 16])
    assert found.params[:, 0].tolist() == [values[g].mean() for g in groups]
    assert found.params[:, 2].tolist() == [max(g) for g in groups], "counters take the maximum"
    assert found.num_examples.tolist() == [sum(i + 1 for i in g) for g in groups]
    shares = [sum((i + 1) * (i % 2) for i in g) / sum(i + 1 for i in g) for g in groups]
    assert found.mixes[:, 1] == pytest.approx(shares)


def test_buckets_change_a_median_and_are_drawn_anew_every_round():
    def play(bucket):
        changes = {"run.rounds": 3, "run.clients_per_round": 6, "data.clients": 6}
        changes |= {"aggregation.use": "median", "aggregation.bucket": bucket}
        method = method_of(resolve(override({}, changes)))
        return [s.models for s, _ in run(settle(method, ScriptedRuntime(np.full((6, 2), 5)), 0))]

    assert np.array_equal(play(1)[0], play(2)[0])
    assert not np.array_equal(play(1)[1], play(2)[1])
    assert all(np.array_equal(a, b) for a, b in zip(play(2), play(2), strict=True))


@pytest.mark.parametrize("rule", ["scaffold", "dyn", "nova", "skew_aware"])
def test_rules_that_must_know_their_clients_refuse_buckets(rule):
    with pytest.raises(RecipeError, match="buckets mix them"):
        resolve({"aggregation": {"use": rule, "bucket": 2}})


@pytest.mark.parametrize("rule", ["median", "trimmed_mean", "krum", "geometric_median"])
def test_rules_that_compare_are_refused_where_a_round_ends_with_one_model(rule):
    with pytest.raises(RecipeError, match="a sequential round ends with one"):
        resolve({"aggregation": {"use": rule}, "procedure": {"use": "sequential"}})
    resolve({"aggregation": {"use": "clipped_mean"}, "procedure": {"use": "sequential"}})


# ---------------------------------------------------------------- verified replies


class Spoilers(ScriptedRuntime):
    """Client 0 sets the model to -1, the others to about 5; the server knows the label of
    class 0 the better the higher the first number is, that of class 1 the lower it is.
    """

    def train(self, order):
        values = [-1.0 if int(c) == 0 else 5 + int(c) / 100 for c in order.clients]
        rows = [Reply(np.full(6, v, np.float32), 0.5, 0.01, 3, 10) for v in values]
        return collect(rows, 6)

    def auxiliary(self, models):
        chance = 1 / (1 + np.exp(-models[:, 0].astype(float)))
        both = np.stack([chance, 1 - chance], axis=1)
        return Auxiliary(np.zeros((len(models), 2)), both[:, :, None] * np.ones(2))


def test_a_reply_that_spoils_its_own_labels_is_dropped_and_the_chain_goes_on():
    counts = np.array([[10, 0], [10, 0], [10, 0]])
    changes = {"procedure.use": "sequential", "signal.use": "histogram", "data.auxiliary": 10}
    changes |= {"run.clients_per_round": 3, "data.clients": 3}
    state, record = one_round(Spoilers(counts), **changes, **{"aggregation.verify": 0.1})
    assert list(record.failures) == [0]
    assert record.failures[0].startswith("loss on the server's examples rose by ")
    last = [c for c in record.chains[0].clients if c][-1]
    assert state.models[0, 0] == np.float32(5 + last / 100)
    _, calm = one_round(Spoilers(counts), **changes)
    assert not calm.failures


def test_a_round_in_which_everybody_is_harmful_leaves_the_model_and_the_run_goes_on():
    changes = {"data.auxiliary": 10, "signal.use": "histogram", "aggregation.verify": 0.1}
    runtime = Spoilers(np.array([[0, 10]] * 5))
    state, record = one_round(runtime, **changes)
    assert sorted(record.failures) == [1, 2, 3, 4]
    only = Spoilers(np.array([[0, 0], *[[0, 10]] * 4]))
    state, record = one_round(only, **changes)
    assert sorted(record.failures) == [1, 2, 3, 4]
    assert np.array_equal(state.models[0], only.initial(0))


def test_with_known_labels_only_those_count():
    """Client 2 holds class 1 alone and drives the number up: honest clients 1 do the same with
    class 0.
    """
    counts = np.array([[0, 10], [10, 0], [0, 10]])
    changes = {"data.auxiliary": 10, "run.clients_per_round": 3, "data.clients": 3}
    changes |= {"aggregation.verify": 0.1}
    _, known = one_round(Spoilers(counts), **changes, **{"signal.use": "histogram"})
    assert list(known.failures) == [2]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({}, "needs examples that the server itself holds"),
        (
            {"data.auxiliary": 10, "procedure.use": "sequential", "procedure.relay": "d2d"},
            "devices",
        ),
    ],
)
def test_verify_is_refused_where_nobody_can_look(changes, what):
    with pytest.raises(RecipeError, match=what):
        resolve(override({}, {"aggregation.verify": 0.5, **changes}))


def test_verified_chains_withstand_a_reversed_client_on_digits():
    changes = {
        "partition.alpha": 0.3,
        "run.rounds": 15,
        "run.clients_per_round": 6,
        "procedure.use": "chains",
        "procedure.chains": 2,
        "signal.use": "histogram",
        "data.auxiliary": 100,
        "faults.hostile.share": 0.1,
    }

    def accuracy(**more):
        recipe = override(load("fedavg"), {**changes, **more})
        return fedskew.run(recipe, workers=1).summary()["final_accuracy"]

    assert accuracy() < 0.5
    assert accuracy(**{"aggregation.verify": 0.5}) > 0.75


def test_rounding_of_a_third_leaves_no_division_by_zero():
    assert bounded(np.array([10, 10, 9, 0]), 1 / 3).tolist() == [9, 9, 9, 0]
