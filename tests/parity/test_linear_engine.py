"""Many logistic regressions at once: torch.optim's mathematics, and the same bits alone, in a
crowd and in a worker.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from naive import flat, train_client  # noqa: E402
from torch import nn  # noqa: E402

from fedskew import data, models  # noqa: E402
from fedskew.data import build_shards, from_arrays, from_client_ids  # noqa: E402
from fedskew.experiment.world import store_of  # noqa: E402
from fedskew.runtime.local import linear  # noqa: E402
from fedskew.runtime.local.flat import FlatModule  # noqa: E402
from fedskew.runtime.local.runtime import LocalRuntime  # noqa: E402
from fedskew.runtime.local.trainer import Trainer, linear_layer  # noqa: E402
from fedskew.streams import stream  # noqa: E402
from fedskew.types import LocalJob, ScoreOrder, TrainOrder  # noqa: E402

JOBS = [
    LocalJob(epochs=2, batch=16, lr=0.1),
    LocalJob(epochs=1, batch=7, lr=0.1, weight_decay=0.05),
    LocalJob(epochs=2, batch=16, lr=0.05, momentum=0.9, weight_decay=0.01),
    LocalJob(epochs=2, batch=16, lr=0.05, prox_mu=0.7),
    LocalJob(epochs=3, batch=16, lr=0.003, optimizer="adam", weight_decay=0.01, prox_mu=0.1),
    LocalJob(epochs=2, batch=500, lr=0.01, optimizer="adam"),
]


@pytest.fixture(scope="module")
def shards():
    return build_shards(
        data.load("digits"), clients=8, partition="dirichlet", options={"alpha": 0.5}, seed=0
    )


def logistic():
    return models.build("logistic", (8, 8), 10)


def plain(shards, start, client, job, round=3):
    x = torch.from_numpy((shards.x.astype(np.float32) / 255 - shards.mean) / shards.std).unsqueeze(
        1
    )
    rows = torch.from_numpy(np.array(shards.train.indices(client)))
    model = FlatModule(logistic, 0)
    model.read(start)
    trained = train_client(
        model.module,
        x[rows],
        torch.from_numpy(np.array(shards.y))[rows],
        epochs=job.epochs,
        batch=job.batch,
        lr=job.lr,
        momentum=job.momentum,
        weight_decay=job.weight_decay,
        prox_mu=job.prox_mu,
        optimizer=job.optimizer,
        rng=stream(9, "batch", client, round),
    )
    return flat(trained)


@pytest.mark.parametrize(
    "job",
    JOBS,
    ids=lambda j: f"{j.optimizer}-b{j.batch}-m{j.momentum}-w{j.weight_decay}-p{j.prox_mu}",
)
def test_a_crowd_matches_torch_optim(shards, job):
    everyone = list(range(8))
    with LocalRuntime(store_of(shards), logistic, workers=1) as runtime:
        starts = np.stack([runtime.initial(4), runtime.initial(5)])
        order = TrainOrder(everyone, starts, [c % 2 for c in everyone], job, seed=9, round=3)
        got = runtime.train(order)
        alone = [runtime.train(order.only([client])) for client in everyone]
    for client in everyone:
        assert np.abs(got.params[client] - starts[client % 2]).max() > 1e-3
        assert np.allclose(
            got.params[client], plain(shards, starts[client % 2], client, job), atol=2e-5
        )
        assert got.params[client].tobytes() == alone[client].params[0].tobytes(), (
            "nobody's bits depend on who is beside"
        )
        assert got.loss[client] == alone[client].loss[0]
        assert got.steps[client] == job.epochs * -(-len(shards.train.indices(client)) // job.batch)
        assert got.examples[client] == len(shards.train.indices(client))


@pytest.mark.parametrize("report", ["train", "start", "end"])
def test_worker_processes_give_the_same_bits(shards, report):
    job = LocalJob(epochs=2, batch=16, lr=0.01, optimizer="adam", clip_norm=0.5, report_loss=report)
    added = np.random.default_rng(0).normal(scale=0.02, size=(8, 650)).astype(np.float32)
    with (
        LocalRuntime(store_of(shards), logistic, workers=1) as one,
        LocalRuntime(store_of(shards), logistic, workers=2) as two,
    ):
        start = one.initial(0)
        two.initial(0)
        order = TrainOrder(range(8), start[None], [0] * 8, job, 0, 1, corrections=added)
        a, b = one.train(order), two.train(order)
        wanted = one.score(ScoreOrder(range(8), start[None], [0] * 8, "train")).loss
        trained = one.score(ScoreOrder(range(8), a.params, range(8), "train")).loss
    assert a.params.tobytes() == b.params.tobytes()
    assert a.loss.tobytes() == b.loss.tobytes()
    if report != "train":
        assert np.allclose(a.loss, wanted if report == "start" else trained, atol=1e-5)


def test_corrections_and_clipping_match_the_autograd_step(shards, monkeypatch):
    job = LocalJob(epochs=2, batch=16, lr=0.05, clip_norm=0.3, prox_mu=0.2)
    added = np.random.default_rng(1).normal(scale=0.05, size=(3, 650)).astype(np.float32)

    def train():
        with LocalRuntime(store_of(shards), logistic, workers=1) as runtime:
            model = runtime.initial(0)[None]
            order = TrainOrder([1, 4, 6], model, [0] * 3, job, 0, 1, corrections=added)
            return runtime.train(order)

    together = train()
    monkeypatch.setattr("fedskew.runtime.local.trainer.linear_layer", lambda module, store: None)
    autograd = train()
    assert np.allclose(together.params, autograd.params, atol=1e-5)
    assert np.allclose(together.loss, autograd.loss, atol=1e-5)


def test_groups_that_do_not_fit_are_cut(shards, monkeypatch):
    job = LocalJob(epochs=2, batch=16, lr=0.1)

    def train():
        with LocalRuntime(store_of(shards), logistic, workers=1) as runtime:
            model = runtime.initial(0)[None]
            order = TrainOrder(range(8), model, [0] * 8, job, seed=0, round=1)
            return runtime.train(order).params.tobytes()

    whole = train()
    monkeypatch.setattr(linear, "MAX_PLACES", 3000)
    assert train() == whole


def test_it_is_used_for_one_linear_layer_only(shards):
    store = store_of(shards)
    job = LocalJob()
    assert Trainer(store, logistic, 0).linear_for(job) is not None
    tiny = Trainer(store, lambda: models.build("tiny_mlp", (8, 8), 10), 0)
    assert tiny.linear_for(job) is None
    dropping = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 10))
    assert linear_layer(dropping, store) is None
    tokens = replace(store, x=np.zeros((len(store.y), 64), np.int64))
    assert linear_layer(logistic(), tokens) is None


def thirds(x, y):
    """A table of which client i owns every third row, beginning with row i."""
    shards = build_shards(
        from_arrays(x, y),
        clients=3,
        partition=lambda pool, clients, rng: from_client_ids(np.arange(len(y)) % 3),
        seed=0,
    )
    return store_of(shards)


def narrow():
    return models.build("logistic", (3,), 2)


def test_a_client_without_examples_costs_one_update():
    x, y = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32), np.arange(30) % 2
    store = thirds(x, y)
    offsets = store.train_offsets.copy()
    offsets[2:] = offsets[1]  # clients 1 and 2 lose their rows
    with LocalRuntime(replace(store, train_offsets=offsets), narrow, workers=1) as runtime:
        model = runtime.initial(0)[None]
        replies = runtime.train(TrainOrder([0, 1, 2], model, [0] * 3, LocalJob(), seed=0, round=1))
    assert [bool(f) for f in replies.failures] == [False, True, True]
    assert "no examples" in replies.failures[1]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_losses_far_above_87_are_told_as_they_are(optimizer, monkeypatch):
    """exp(-87.5) is the smallest float32: a loss beyond it once was 87.5, whoever had it."""
    x, y = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32), np.arange(30) % 2
    job = LocalJob(batch=3, lr=1e-6, optimizer=optimizer)
    model = 300 * np.array([[1, -1, 1, -1, 1, -1, 0, 0]], np.float32)

    def train():
        with LocalRuntime(thirds(x, y), narrow, workers=1) as runtime:
            runtime.initial(0)
            return runtime.train(TrainOrder(range(3), model, [0] * 3, job, seed=0, round=1)).loss

    together = train()
    monkeypatch.setattr("fedskew.runtime.local.trainer.linear_layer", lambda module, store: None)
    assert together.min() > 100
    assert together == pytest.approx(train(), rel=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_example_that_is_no_number_costs_its_owner_only(bad, workers):
    """Also where batches are short: they are filled up with something, and it must not be this."""
    x, y = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32), np.arange(30) % 2
    store = thirds(x, y)
    sick = store.x.copy()
    sick[0] = bad
    (owner,) = [c for c in range(3) if 0 in store.rows(c, "train")]
    job = LocalJob(batch=3)  # of 8 rows each
    replies = []
    for examples in (sick, store.x):
        with LocalRuntime(replace(store, x=examples), narrow, workers=workers) as runtime:
            model = runtime.initial(0)[None]
            order = TrainOrder(range(3), model, [0] * 3, job, seed=0, round=1)
            replies.append(runtime.train(order))
    hurt, healthy = replies
    assert [bool(why) for why in hurt.failures] == [client == owner for client in range(3)]
    for client in set(range(3)) - {owner}:
        assert hurt.params[client].tobytes() == healthy.params[client].tobytes()
        assert hurt.loss[client] == healthy.loss[client]


def test_a_client_that_diverges_fails_alone_and_in_silence():
    x, y = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32), np.arange(30) % 2
    store = thirds(x, y)
    wild = store.x.copy()
    wild[store.rows(1, "train")] *= np.float32(1e30)
    with LocalRuntime(replace(store, x=wild), narrow, workers=1) as runtime:
        order = TrainOrder(
            range(3), runtime.initial(0)[None], [0] * 3, LocalJob(batch=3, lr=1e5), seed=0, round=1
        )
        replies = runtime.train(order)
    assert [bool(why) for why in replies.failures] == [False, True, False]
