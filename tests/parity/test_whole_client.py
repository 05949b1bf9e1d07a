"""One step on all a client has: the default probe is exact, whatever trains, and fits in memory."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from torch import nn

from fedskew import data, models
from fedskew.data import build_shards
from fedskew.experiment.world import store_of
from fedskew.loop.federation import prepare, settle
from fedskew.recipe import method_of, resolve
from fedskew.runtime.local import linear, step
from fedskew.runtime.local.runtime import LocalRuntime
from fedskew.types import WHOLE_BATCH, LocalJob, TrainOrder

OLD = {"batch": 32, "lr": 0.01, "start": "model"}
WHOLE = LocalJob(batch=WHOLE_BATCH, lr=0.5)


@pytest.fixture(scope="module")
def store():
    shards = build_shards(
        data.load("digits"), clients=8, partition="dirichlet", options={"alpha": 0.1}, seed=0
    )
    return store_of(shards)


def small_cnn():
    parts = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 10)
    return nn.Sequential(*parts)


def build(name):
    return small_cnn if name == "cnn" else lambda: models.build(name, (8, 8), 10)


def total_variation(store, name, **options):
    recipe = resolve({"signal": {"use": "estimated", **options}})
    with LocalRuntime(store, build(name), workers=1) as runtime:
        state, _ = prepare(settle(method_of(recipe), runtime, 0))
        counts = runtime.label_counts()
    shares = counts / counts.sum(axis=1, keepdims=True)
    return np.abs(state.signal.rows - shares).sum(axis=1).max() / 2


@pytest.mark.parametrize("name", ["logistic", "tiny_mlp", "cnn"])
def test_the_default_probe_reads_label_mixes_exactly(store, name):
    """Also with torch's own start of the output layer, which the old probe reads badly."""
    assert total_variation(store, name) < 1e-4
    assert total_variation(store, name, **OLD) > 0.01


def noted_pieces(monkeypatch):
    """A list that fills with the sizes of what goes forward and back at once."""
    pieces = []
    original = step.AutogradStep._piece

    def noted(self, x, y, lesson, examples):
        pieces.append(len(y))
        return original(self, x, y, lesson, examples)

    monkeypatch.setattr(step.AutogradStep, "_piece", noted)
    return pieces


def test_a_whole_client_in_pieces_has_the_gradient_of_the_whole(store, monkeypatch):
    def trained():
        with LocalRuntime(store, build("cnn"), workers=1) as runtime:
            order = TrainOrder([0, 3], runtime.initial(0)[None], [0, 0], WHOLE, 0, 1)
            replies = runtime.train(order)
        assert replies.steps.tolist() == [1, 1]
        return replies

    whole = trained()
    pieces = noted_pieces(monkeypatch)
    monkeypatch.setattr(step, "PIECE", 50)
    cut = trained()
    assert len(pieces) > 4
    assert max(pieces) == 50
    assert np.abs(cut.params - whole.params).max() < 1e-6
    assert cut.loss == pytest.approx(whole.loss, abs=1e-6)


def test_what_cannot_be_cut_and_what_need_not_be_stays_whole(store, monkeypatch):
    """Batch statistics are those of the whole batch, and an ordinary batch is no whole client."""

    def normed():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))

    pieces = noted_pieces(monkeypatch)
    monkeypatch.setattr(step, "PIECE", 20)
    size = int(np.diff(store.train_offsets)[3])
    for factory, job in ((normed, WHOLE), (build("cnn"), LocalJob(batch=size))):
        with LocalRuntime(store, factory, workers=1) as runtime:
            runtime.train(TrainOrder([3], runtime.initial(0)[None], [0], job, 0, 1))
    assert pieces == [size, size]


def test_many_whole_clients_of_different_sizes_have_the_bits_of_each_alone(store, monkeypatch):
    widths = []
    original = linear._batches

    def noted(member, job, padding):
        widths.append((len(member.rows), job.batch))
        return original(member, job, padding)

    monkeypatch.setattr(linear, "_batches", noted)
    monkeypatch.setattr(linear, "MAX_GATHERED", 1 << 15)  # two or three clients at a time
    with LocalRuntime(store, build("logistic"), workers=1) as runtime:
        order = TrainOrder(range(8), runtime.initial(0)[None], [0] * 8, WHOLE, 0, 1)
        crowd = runtime.train(order)
        alone = [runtime.train(order.only([c])) for c in range(8)]
    assert [row.tobytes() for row in crowd.params] == [a.params[0].tobytes() for a in alone]
    assert crowd.steps.tolist() == [1] * 8
    assert all(rows <= batch < 2 * rows for rows, batch in widths), "no padding to a billion"
