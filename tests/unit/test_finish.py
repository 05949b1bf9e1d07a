"""What is done after the last round: CCVR's fit against numpy and scikit-learn, FedConcat's second
act, what both cost, and that a run goes on from anywhere to the same model.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scipy.special import softmax  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from torch import nn  # noqa: E402

from fedskew.errors import RecipeError  # noqa: E402
from fedskew.experiment.local import run  # noqa: E402
from fedskew.finish.ccvr import CCVR, fitted, gaussians, virtual_features  # noqa: E402
from fedskew.recipe import load, num_rounds, override, resolve  # noqa: E402
from fedskew.runtime.local.concatenated import SideBySide, with_weights  # noqa: E402
from fedskew.runtime.local.flat import FlatModule, layout_of  # noqa: E402
from fedskew.types import Moments  # noqa: E402

SMALL = {"run.rounds": 3, "data.clients": 6, "run.clients_per_round": 3, "partition.alpha": 0.2}
CONCAT = {**SMALL, "clustering.count": 2, "finish.rounds": 3}


def moments_of(groups):
    """One client per group: (features, labels)."""
    counts, sums, products = [], [], []
    for x, y in groups:
        mine = [x[y == label] for label in range(3)]
        counts.append([len(part) for part in mine])
        sums.append([part.sum(axis=0) for part in mine])
        products.append([part.T @ part for part in mine])
    return Moments(np.array(counts), np.array(sums), np.array(products))


def features(seed=0, n=300):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, 4)) @ rng.normal(size=(4, 4)) + 2 * np.eye(3, 4)[y], y


# ---------------------------------------------------------------- CCVR


def test_gaussians_are_those_of_all_examples_however_they_are_dealt_out():
    x, y = features()
    parts = np.array_split(np.random.default_rng(1).permutation(len(y)), 7)
    moments = moments_of([(x[part], y[part]) for part in parts])
    total = [part.sum(axis=0) for part in (moments.counts, moments.sums, moments.products)]
    for label, (mean, covariance) in gaussians(*total).items():
        mine = x[y == label]
        assert mean == pytest.approx(mine.mean(axis=0), abs=1e-9)
        assert covariance == pytest.approx(np.cov(mine.T), abs=1e-9)


def test_virtual_features_have_these_moments():
    x, y = features()
    drawn, labels = virtual_features(moments_of([(x, y)]), 40_000, np.random.default_rng(0))
    for label in range(3):
        mine = drawn[labels == label]
        assert len(mine) == 40_000
        assert mine.mean(axis=0) == pytest.approx(x[y == label].mean(axis=0), abs=0.1)
        assert np.cov(mine.T) == pytest.approx(np.cov(x[y == label].T), abs=0.25)


def test_the_fit_is_logistic_regression():
    x, y = features()
    weight, bias = fitted(x, y, np.zeros((3, 4)), np.zeros(3), ridge=0.01)
    other = LogisticRegression(C=1 / (0.01 * len(y)), tol=1e-8, max_iter=1000).fit(x, y)
    ours, theirs = softmax(x @ weight.T + bias, axis=1), other.predict_proba(x)
    assert np.abs(ours - theirs).max() < 1e-3


def test_a_skewed_output_layer_is_put_right():
    x, y = features()
    weight, bias = fitted(x, y, np.zeros((3, 4)), np.zeros(3), ridge=1e-4)
    skewed = bias + np.array([9.0, 0.0, -9.0])
    accuracy = lambda w, b: float(((x @ w.T + b).argmax(axis=1) == y).mean())  # noqa: E731
    found = CCVR(virtual=400).calibrate(
        moments_of([(x, y)]), weight, skewed, np.random.default_rng(0)
    )
    assert accuracy(weight, skewed) < 0.6 < accuracy(weight, bias) - 0.1
    assert accuracy(*found) > accuracy(weight, bias) - 0.04


def test_classes_nobody_has_are_left_out():
    empty = Moments(np.zeros((1, 3)), np.zeros((1, 3, 4)), np.zeros((1, 3, 4, 4)))
    weight, bias = np.ones((3, 4)), np.ones(3)
    same = CCVR().calibrate(empty, weight, bias, np.random.default_rng(0))
    assert same[0] is weight
    assert same[1] is bias


def test_ccvr_on_skewed_digits_beats_the_rounds_before_it():
    plain = run("fedavg", settings={"partition.alpha": 0.1, "run.rounds": 15}, workers=1)
    result = run("ccvr", settings={"partition.alpha": 0.1, "run.rounds": 15}, workers=1)
    before = [record.accuracy for record in result.rounds[:-1]]
    assert before == [record.accuracy for record in plain.rounds]
    assert result.summary()["final_accuracy"] == result.rounds[-1].accuracy
    assert result.rounds[-1].accuracy > max(before[-5:]) + 0.02
    changed = np.flatnonzero(result.models[0] != plain.models[0])
    assert changed.min() >= 64 * 32 + 32, "more than the output layer was touched"


def test_what_ccvr_costs():
    result = run("ccvr", settings=SMALL, workers=1)
    last = {(t.direction, t.kind): t.bytes for t in result.rounds[-1].transfers}
    assert last == {
        ("down", "model"): 6 * 2410 * 4,
        ("up", "features"): 6 * 4 * 10 * (1 + 32 + 528),
    }
    assert result.rounds[-1].cost.seconds > 0 < result.rounds[-1].cost.joules
    assert result.rounds[-1].round == 4 == num_rounds(result.recipe)


def test_some_clients_cost_less_and_are_a_sample():
    everybody = run("ccvr", settings=SMALL, workers=1)
    some = run("ccvr", settings={**SMALL, "finish.clients": 2}, workers=1)
    bytes_of = [sum(t.bytes for t in r.rounds[-1].transfers) for r in (some, everybody)]
    assert bytes_of[0] * 3 == bytes_of[1]
    assert some.rounds[-1].cost.joules < everybody.rounds[-1].cost.joules
    assert not np.array_equal(some.models, everybody.models)
    many = run("ccvr", settings={**SMALL, "finish.clients": 60}, workers=1)
    assert np.array_equal(many.models, everybody.models)
    other = run("ccvr", settings={**SMALL, "finish.clients": 2}, workers=1, seed=1)
    assert other.rounds[-1].transfers == some.rounds[-1].transfers


# ---------------------------------------------------------------- FedConcat


def network():
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def test_side_by_side_is_what_it_says():
    flats = [FlatModule(network, seed) for seed in (1, 2)]
    vectors = np.stack([flat.vector.detach().numpy().copy() for flat in flats])
    vectors[1, -6:-2] += 0.5  # running statistics of its own
    module = SideBySide(network, vectors)().train()
    x = torch.randn(6, 5)
    bodies = [with_weights(network(), vector).eval() for vector in vectors]
    seen = torch.cat([body[:-1](x) for body in bodies], dim=1)
    torch.testing.assert_close(module(x), module.head(seen))
    assert [block.name for block in layout_of(module).blocks] == ["head.weight", "head.bias"]
    assert layout_of(module)["head.weight"].shape == (3, 8)


@pytest.fixture(scope="module")
def concat(tmp_path_factory):
    return run("fedconcat", settings=CONCAT, workers=1, out=tmp_path_factory.mktemp("c") / "run")


def test_the_second_act_trains_one_output_layer(concat):
    first, second = concat.rounds[1:4], concat.rounds[4:]
    assert len(second) == 3
    assert all(np.isnan(record.accuracy) for record in first)
    assert not any(np.isnan(record.accuracy) for record in second)
    assert concat.models.shape == (1, 2 * 32 * 10 + 10)
    assert concat.summary()["models"] == 1
    accuracies = [record.accuracy for record in second]
    assert concat.summary()["final_accuracy"] == pytest.approx(np.mean(accuracies))
    assert {chain.slot for record in second for chain in record.chains} == {0}


def test_its_state_dict_is_the_whole_model(concat):
    state = concat.state_dict()
    bodies = {name for name in state if name.startswith("bodies.")}
    assert {"head.weight", "head.bias"} == set(state) - bodies
    assert len(bodies) == 2 * 2  # weight and bias of one hidden layer each
    again = type(concat).load(concat.folder).state_dict()
    assert all(np.array_equal(again[name], state[name]) for name in state)
    assert not np.array_equal(state["bodies.0.1.weight"], state["bodies.1.1.weight"])


def test_bodies_are_charged_once_to_each_client(concat):
    body, head = 4 * (64 * 32 + 32), 4 * (64 * 10 + 10)
    seen: set[int] = set()
    for record in concat.rounds[4:]:
        asked = {client for chain in record.chains for client in chain.clients}
        down = sum(t.bytes for t in record.transfers if t.direction == "down")
        assert down == len(asked) * head + len(asked - seen) * 2 * body
        assert sum(t.bytes for t in record.transfers if t.direction == "up") == len(asked) * head
        seen |= asked
    assert len(seen) > 3


def same_run(one, other):
    assert np.array_equal(one.models, other.models)
    strip = lambda record: (record.round, record.chains, record.transfers, record.cost)  # noqa: E731
    assert [strip(r) for r in one.rounds] == [strip(r) for r in other.rounds]
    assert [r.accuracy for r in one.rounds[4:]] == [r.accuracy for r in other.rounds[4:]]


@pytest.mark.parametrize(("recipe", "settings"), [("ccvr", SMALL), ("fedconcat", CONCAT)])
def test_two_workers_and_a_resumed_run_leave_the_same_model(recipe, settings, tmp_path, concat):
    settings = {**settings, "run.checkpoint_seconds": 0.0}
    whole = concat if recipe == "fedconcat" else run(recipe, settings=settings, workers=1)
    same_run(run(recipe, settings=settings, workers=2), whole)
    for stop in (3, 5 if recipe == "fedconcat" else 4):

        def end(record, stop=stop):
            if record.round == stop:
                raise KeyboardInterrupt

        out = tmp_path / str(stop)
        with pytest.raises(KeyboardInterrupt):
            run(recipe, settings=settings, workers=1, out=out, on_round=end)
        same_run(run(recipe, settings=settings, workers=1, out=out, resume=True), whole)


def test_faults_go_on_in_the_second_act():
    result = run(
        "fedconcat", settings={**CONCAT, "faults.dropout": 0.5, "run.min_ok": 0}, workers=1
    )
    assert sum(len(record.failures) for record in result.rounds[4:]) > 0


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("recipe", "settings", "what"),
    [
        ("clust_psi_pfl", {"finish.use": "ccvr"}, "needs one model"),
        ("fedavg", {"finish.use": "fedconcat"}, "needs a model per group"),
        ("fedbabu", {"finish.use": "ccvr"}, "output layer that is trained"),
        ("fedconcat", {"finish.rounds": 0}, "rounds = 0"),
        ("ccvr", {"finish.virtuals": 3}, "unknown option"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(recipe, settings, what):
    with pytest.raises(RecipeError, match=what):
        resolve(override(load(recipe), settings))
