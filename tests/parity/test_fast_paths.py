"""A job that asks for something a fast path does not know is trained by autograd."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fedskew import data, models  # noqa: E402
from fedskew.data import build_shards  # noqa: E402
from fedskew.experiment.world import store_of  # noqa: E402
from fedskew.runtime.local.flat import FlatModule  # noqa: E402
from fedskew.runtime.local.linear import LinearTrainer  # noqa: E402
from fedskew.runtime.local.runtime import LocalRuntime  # noqa: E402
from fedskew.runtime.local.step import AutogradStep, FusedMLPStep, step_for  # noqa: E402
from fedskew.runtime.local.trainer import Trainer  # noqa: E402
from fedskew.types import LocalJob, TrainOrder  # noqa: E402


@dataclass(frozen=True)
class Wishful(LocalJob):
    """A job with two fields that no fast path has heard of."""

    temperature: float = 1.0
    classes: tuple[int, ...] = field(default_factory=tuple)


USUAL = Wishful(epochs=2, batch=8, lr=0.1, weight_decay=0.1, prox_mu=0.1, clip_norm=1.0)
USUAL = replace(USUAL, max_examples=20, report_loss="end")
UNHEARD = [{"temperature": 2.0}, {"classes": (1,)}]


@pytest.fixture(scope="module")
def store():
    shards = build_shards(
        data.load("digits"), clients=4, partition="dirichlet", options={"alpha": 0.5}, seed=0
    )
    return store_of(shards)


def build(name):
    return lambda: models.build(name, (8, 8), 10)


def test_the_fused_step_takes_what_it_honours():
    model = FlatModule(build("tiny_mlp"), 0)
    assert isinstance(step_for(model, USUAL), FusedMLPStep)
    for change in (*UNHEARD, {"momentum": 0.9}, {"optimizer": "adam"}):
        assert isinstance(step_for(model, replace(USUAL, **change)), AutogradStep)


def test_the_linear_engine_takes_what_it_honours(store):
    trainer = Trainer(store, build("logistic"), 0)
    for change in ({}, {"momentum": 0.9}, {"optimizer": "adam"}):
        assert trainer.linear_for(replace(USUAL, **change)) is not None
    for change in (*UNHEARD, {"optimizer": "rmsprop"}):
        assert trainer.linear_for(replace(USUAL, **change)) is None


@pytest.mark.parametrize("name", ["tiny_mlp", "logistic"])
@pytest.mark.parametrize("change", UNHEARD, ids=["plain default", "made default"])
def test_a_runtime_leaves_an_unheard_of_wish_to_autograd(store, name, change, monkeypatch):
    """One client and several, which the linear engine would train together."""
    paths = []

    def note(owner, method):
        original = getattr(owner, method)

        def noted(self, *arguments):
            paths.append(owner)
            return original(self, *arguments)

        monkeypatch.setattr(owner, method, noted)

    note(AutogradStep, "__call__")
    note(FusedMLPStep, "__call__")
    note(LinearTrainer, "train")
    fast = {"tiny_mlp": FusedMLPStep, "logistic": LinearTrainer}[name]
    with LocalRuntime(store, build(name), workers=1) as runtime:
        order = TrainOrder([0, 1], runtime.initial(0)[None], [0, 0], USUAL, seed=0, round=1)
        quick = runtime.train(order)
        assert set(paths) == {fast}
        for some in (order, order.only([0])):
            paths.clear()
            slow = runtime.train(replace(some, job=replace(USUAL, **change)))
            assert set(paths) == {AutogradStep}
            assert slow.failures == ("",) * len(some.clients)
            assert np.allclose(slow.params, quick.params[: len(some.clients)], atol=1e-5)
