"""What a client may say: bounds by hand, random nonsense by hypothesis, and honest clients at the
edge of what is honest.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedskew.experiment.local import run
from fedskew.runtime.border import (
    LARGEST_WEIGHTS,
    Array,
    ListOf,
    Model,
    Number,
    Row,
    most_drawn,
    shown,
    too_large,
    training_form,
    why_refused,
    why_unfit,
)
from fedskew.runtime.flower.policy import Policy
from fedskew.runtime.local.one_process import Alone
from fedskew.runtime.replies import Reply, collect, forms_of
from fedskew.types import Layout, LocalJob, TrainOrder

NAN, INF = float("nan"), float("inf")
PLAIN = Layout.of([("w", (4,), "weight")])
NORMED = Layout.of(
    [
        ("w", (2,), "weight"),
        ("bn.running_mean", (2,), "buffer"),
        ("bn.running_var", (2,), "buffer"),
        ("bn.num_batches_tracked", (), "counter"),
    ]
)
ONES = np.ones(4, np.float32)


# ---------------------------------------------------------------- one reply at a time


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"loss": NAN}, "non-finite loss"),
        ({"loss": -2.0}, "loss is -2, not within -1 and 3.40282e+38"),
        ({"loss": 1e39}, "loss is 1e+39"),
        ({"loss": None}, "loss is no number"),
        ({"loss": True}, "loss is no number"),
        ({"seconds": NAN}, "non-finite seconds"),
        ({"seconds": -1.0}, "seconds is -1"),
        ({"seconds": 1e9}, "seconds is 1e+09"),
        ({"steps": 0}, "steps is 0, not within 1 and 6"),
        ({"steps": 7}, "steps is 7"),
        ({"steps": 2.0}, "steps is no whole number"),
        ({"examples": 10**30}, "examples is 1e+30, not within 1 and 33"),
        ({"examples": 10**400}, "examples is a number beyond 1e300"),
        ({"examples": 34}, "examples is 34"),
        ({"params": ONES[:3]}, "wrong shape: (3,) instead of (4,)"),
        ({"params": ONES * NAN}, "non-finite parameters"),
        ({"params": ONES * 1e7}, "parameters too large: their root mean square is 1e+07"),
        ({"params": np.ones(4)}, "params is no array of float32"),
        ({"params": [1, 1, 1, 1]}, "params is no array of float32"),
        ({"params": None}, "no parameters"),
    ],
)
def test_one_thing_wrong_costs_the_update(change, why):
    """33 examples in batches of 16, twice: at most 6 steps."""
    order = TrainOrder([0], np.zeros((1, 4), np.float32), [0], LocalJob(epochs=2, batch=16), 0, 1)
    honest = Reply(ONES, 0.5, 0.1, 6, 33)
    forms = forms_of(order, np.array([33]))
    assert collect([honest], 4, forms=forms).failures == ("",)
    found = collect([replace(honest, **change)], 4, forms=forms)
    assert found.failures[0].startswith(why)
    values = (found.params, found.seconds, found.steps, found.examples)
    assert all(np.isfinite(value).all() for value in values)
    assert np.isnan(found.loss).all()


def test_seconds_of_a_failure_are_kept_if_they_make_sense():
    failed = [Reply(ONES * NAN, 0.5, 3.0), Reply(ONES * NAN, 0.5, NAN), Reply(ONES, 0.5, -3.0)]
    assert collect(failed, 4).seconds.tolist() == [3.0, 0.0, 0.0]


def test_a_negative_objective_survives_every_wrapper():
    """Replies are checked again behind faults and deadlines, where nobody knows the objective."""
    order = TrainOrder([0], ONES[None], [0], LocalJob(objective="fedlc"), 0, 1)
    said = Reply(ONES, -7.0, 0.1, 1, 5)
    assert collect([said], 4, forms=forms_of(order, np.array([5]))).failures == ("",)
    assert collect([said], 4).failures == ("",)


def test_what_was_seen_where_the_model_was_made_is_believed():
    found = collect(
        [Reply(ONES, 0.5, unfit="non-finite parameters"), Reply(ONES, 0.5, unfit="")], 4
    )
    assert found.failures == ("non-finite parameters", "")


# ---------------------------------------------------------------- models


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ([1, 1, 0, 0, 1, 1, 7], ""),
        ([9e5, 9e5, 0, 0, 1, 1, 7], ""),
        ([1.1e6, 1.1e6, 0, 0, 1, 1, 7], "parameters too large"),
        ([1e30, 1, 0, 0, 1, 1, 7], "parameters too large"),
        ([1, 1, 1e7, -1e7, 1e14, 1e14, 1e5], ""),  # statistics of raw features
        ([1, 1, 0, 1e20, 1, 1, 7], "parameters too large"),
        ([1, 1, 0, 0, -1e-3, 1, 7], "a negative bn.running_var"),
        ([1, 1, -5, 0, 1, 1, -1], "a negative bn.num_batches_tracked"),
        ([1, 1, 0, 0, NAN, 1, 7], "non-finite parameters"),
        ([1, INF, 0, 0, 1, 1, 7], "non-finite parameters"),
    ],
)
def test_models_with_statistics(model, why):
    found = why_unfit(np.array(model, np.float32), NORMED)
    assert found.startswith(why)
    assert bool(found) == bool(why)


@given(hnp.arrays(np.float32, st.integers(1, 9), elements=st.floats(width=32)))
@settings(max_examples=300, deadline=None)
def test_too_large_is_what_its_definition_says(numbers):
    """Against the definition in double precision; within 0.1 % of the bound either may be right."""
    size = np.sqrt(np.mean(np.square(numbers, dtype=np.float64)))
    if not abs(size / LARGEST_WEIGHTS - 1) < 1e-3:
        assert (too_large(numbers) == "") == bool(size <= LARGEST_WEIGHTS)


# ---------------------------------------------------------------- nonsense

SCALARS = [
    None, True, False, 0, 1, -1, 5, 34, 2**63, 2**64, 10**30, -(10**400), 10**400, 0.5, 1.5, -1e-9,
    1e39, -1e300, NAN, INF, -INF, 1j, "", "7", "\ud800\x1b[2J\n", "x" * 10_000, b"\xff", object(),
    np.float32(1), np.float64(NAN), np.int8(-3), np.uint64(2**63), np.bool_(1), np.str_("a"),
]  # fmt: skip
DTYPES = ["<f4", "<f4", "<f4", "<f8", ">f4", "<f2", "<u4", "<i8", "?", "<U3", "O", "<c8", "<M8[s]"]
SHAPES = [(4,), (4,), (4,), (), (0,), (3,), (5,), (1, 4), (2, 2), (4, 0)]
NUMBERS = [0, 1, -1, 11, NAN, INF, 1e7, 1e30, -1e38]
FORM = {
    **training_form(33, LocalJob()),
    "params": Model(PLAIN),
    "counts": Array((4,), "<f8", -10, 10),
    "scores": ListOf(2, Row((Number(0, 1, nan=True), Number(0, 9, whole=True)))),
}


def nonsense(rng, depth=0):
    """A value of any kind, nested now and then."""
    way = rng.random()
    if way < 0.5:
        return SCALARS[rng.integers(len(SCALARS))]
    if way < 0.8 or depth > 3:
        dtype, shape = DTYPES[rng.integers(len(DTYPES))], SHAPES[rng.integers(len(SHAPES))]
        if dtype in ("<f4", "<f8"):
            mixed = rng.choice(NUMBERS, shape, p=[0.6] + [0.05] * 8)
            return np.asarray(mixed).astype(dtype)
        return np.ones(shape, np.int64).astype(dtype)
    inner = [nonsense(rng, depth + 1) for _ in range(rng.integers(4))]
    return inner if way < 0.95 else dict(enumerate(inner))


def test_nonsense_is_judged_and_never_raises():
    """Whatever is said is refused in few words, or is what the rule means: 20,000 times."""
    rng, passed = np.random.default_rng(0), 0
    for turn in range(20_000):
        name = sorted(FORM)[turn % len(FORM)]
        value = nonsense(rng)
        why = why_refused({name: value}, {name: FORM[name]})
        assert isinstance(why, str)
        assert len(why) < 300
        assert why.isprintable()
        passed += not why
        if why:
            continue
        if name in ("loss", "seconds"):
            assert -1 <= float(value) <= 3.5e38
        if name in ("steps", "examples"):
            assert 1 <= int(value) <= 33
        if name in ("params", "counts"):
            assert value.shape == (4,)
            assert np.abs(value).max() <= 2e6
    assert 200 < passed < 10_000


def test_nonsense_from_a_worker_never_ends_a_round():
    rng = np.random.default_rng(1)
    order = TrainOrder([0, 1], np.zeros((1, 4), np.float32), [0, 0], LocalJob(), 0, 1)
    honest, forms = Reply(ONES, 0.5, 0.1, 1, 5), forms_of(order, np.array([5, 5]))
    for _ in range(5_000):
        names = [name for name in vars(honest) if name in FORM and rng.random() < 0.3]
        said = replace(honest, **{name: nonsense(rng) for name in names})
        found = collect([said, honest], 4, forms=forms)
        assert found.failures[1] == ""
        assert np.isfinite(found.params).all()
        assert np.isfinite(found.seconds).all()
        assert found.params[1].tolist() == [1, 1, 1, 1]


def test_anything_can_be_shown():
    rng = np.random.default_rng(2)
    for _ in range(2_000):
        text = shown(nonsense(rng))
        assert len(text) <= 200
        assert text.isprintable()


# ---------------------------------------------------------------- whole runs on this machine

SMALL = {"data.clients": 8, "run.clients_per_round": 8, "run.rounds": 3, "partition.use": "iid"}


@pytest.mark.parametrize(
    "change",
    [
        {"loss": NAN},
        {"seconds": NAN},
        {"steps": 10**30},
        {"examples": 10**30},
        {"params": np.full(2410, 1e30, np.float32), "unfit": None},
        {"params": "a model", "unfit": None},
        {"failure": "dead"},
    ],
)
def test_a_sick_worker_costs_its_clients_updates(change, monkeypatch, tmp_path):
    """Two clients of eight are spoiled: the run is the one in which those two are dead."""

    def spoiled_by(change):
        honest = Alone.train

        def train(self, tasks, models):
            replies, out = honest(self, tasks, models)
            for task in tasks:
                if task.client < 2:
                    replies[task.row] = replace(replies[task.row], **change)
            return replies, out

        with monkeypatch.context() as patch:
            patch.setattr(Alone, "train", train)
            return run("fedavg", seed=1, workers=1, settings=SMALL, out=tmp_path / str(len(change)))

    found = spoiled_by(change)
    assert all(sorted(r.failures) == [0, 1] for r in found.rounds[1:])
    tmp_path = tmp_path / "dead"
    assert np.array_equal(found.models, spoiled_by({"failure": "dead"}).models)


@pytest.mark.parametrize("scale", [1e-3, 1e4])
def test_honest_clients_are_not_refused_whatever_their_units(scale):
    """Raw features: weights grow with them under SGD, far past those of any recipe."""
    rng = np.random.default_rng(0)
    x = (scale * rng.normal(size=(400, 6))).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    settings = {
        "run.rounds": 3,
        "data.clients": 4,
        "run.clients_per_round": 4,
        "model.use": "logistic",
    }
    played = run("fedavg", data=(x, y), seed=0, workers=1, settings=settings)
    assert all(not r.failures for r in played.rounds)


@given(st.integers(1, 5000), st.integers(0, 5000), st.integers(1, 700))
def test_a_policy_never_rounds_an_honest_client_out(own, drawn, step):
    """What a client says of its draw is within what its hello allows."""
    policy = Policy(round_examples_to=step)
    trained = drawn or own
    assert policy.told(trained) <= most_drawn(policy.told(own), drawn)
