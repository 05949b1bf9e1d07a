"""The local engine against a naive loop, torch.optim, and itself with other numbers of workers."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from naive import fedavg_round, flat, train_client  # noqa: E402
from torch import nn  # noqa: E402

import fedskew  # noqa: E402
from fedskew import data, models  # noqa: E402
from fedskew.data import build_shards  # noqa: E402
from fedskew.errors import RunError, WorkerError  # noqa: E402
from fedskew.experiment.world import store_of  # noqa: E402
from fedskew.runtime.local.flat import FlatModule  # noqa: E402
from fedskew.runtime.local.runtime import LocalRuntime  # noqa: E402
from fedskew.runtime.local.step import AutogradStep, FusedMLPStep, step_for  # noqa: E402
from fedskew.runtime.local.trainer import draw_rows  # noqa: E402
from fedskew.streams import stream  # noqa: E402
from fedskew.types import LocalJob, ScoreOrder, TrainOrder  # noqa: E402


@pytest.fixture(scope="module")
def shards():
    return build_shards(
        data.load("digits"), clients=8, partition="dirichlet", options={"alpha": 0.5}, seed=0
    )


def tiny():
    return models.build("tiny_mlp", (8, 8), 10)


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(4 * 36, 10),
    )


def normalised(shards):
    x = (shards.x.astype(np.float32) / 255 - shards.mean) / shards.std
    return torch.from_numpy(x).unsqueeze(1), torch.from_numpy(np.array(shards.y))


def module_with(factory, vector):
    model = FlatModule(factory, 0)
    model.read(vector)
    return model.module


JOBS = [
    LocalJob(epochs=2, batch=16, lr=0.1),
    LocalJob(epochs=1, batch=7, lr=0.1, weight_decay=0.05),
    LocalJob(epochs=2, batch=16, lr=0.05, momentum=0.9, weight_decay=0.01),
    LocalJob(epochs=2, batch=16, lr=0.05, prox_mu=0.7),
    LocalJob(epochs=2, batch=16, lr=0.05, prox_mu=0.7, momentum=0.5, weight_decay=0.01),
    LocalJob(epochs=2, batch=16, lr=0.003, optimizer="adam", weight_decay=0.01),
    LocalJob(epochs=2, batch=16, lr=0.003, optimizer="adamw", weight_decay=0.5),
]


@pytest.mark.parametrize(
    "job", JOBS, ids=lambda j: f"{j.optimizer}-m{j.momentum}-w{j.weight_decay}-p{j.prox_mu}"
)
def test_every_local_job_matches_torch_optim(shards, job):
    x, y = normalised(shards)
    with LocalRuntime(store_of(shards), tiny, workers=1) as runtime:
        start = runtime.initial(4)
        got = runtime.train(TrainOrder([2], start[None], [0], job, seed=9, round=3))
    rows = torch.from_numpy(np.array(shards.train.indices(2)))
    plain = train_client(
        module_with(tiny, start),
        x[rows],
        y[rows],
        epochs=job.epochs,
        batch=job.batch,
        lr=job.lr,
        momentum=job.momentum,
        weight_decay=job.weight_decay,
        prox_mu=job.prox_mu,
        optimizer=job.optimizer,
        rng=stream(9, "batch", 2, 3),
    )
    assert got.failures == ("",)
    assert np.abs(got.params[0] - start).max() > 1e-3
    assert np.allclose(got.params[0], flat(plain), atol=1e-5)


@pytest.mark.parametrize(("dropout", "outcomes"), [(0.5, 3), (0.0, 1)])
def test_dropout_differs_from_client_to_client_and_from_round_to_round(shards, dropout, outcomes):
    """All examples are the same one, so the order of batches cannot make the difference."""
    same = replace(
        shards, x=np.repeat(shards.x[:1], len(shards.x), axis=0), y=np.zeros_like(shards.y)
    )

    def factory():
        layers = nn.Linear(64, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 10)
        return nn.Sequential(nn.Flatten(), *layers)

    job = LocalJob(batch=5, max_examples=5, lr=0.1)
    with LocalRuntime(store_of(same), factory, workers=1) as runtime:
        start = runtime.initial(4)[None]
        first = runtime.train(TrainOrder([0, 1], start, [0, 0], job, seed=9, round=1))
        second = runtime.train(TrainOrder([0], start, [0], job, seed=9, round=2))
        again = runtime.train(TrainOrder([0], start, [0], job, seed=9, round=1))
    assert np.array_equal(first.params[0], again.params[0])
    assert len(np.unique(np.concatenate([first.params, second.params]), axis=0)) == outcomes


def test_the_fused_step_is_used_and_is_the_same_mathematics():
    x, y = torch.randn(12, 64), torch.randint(0, 10, (12,))
    added = torch.randn(2410) * 0.02
    for job, correction in (
        (LocalJob(lr=0.2), None),
        (LocalJob(lr=0.2, weight_decay=0.1, prox_mu=0.3), None),
        (LocalJob(lr=0.2), added),  # SCAFFOLD
        (LocalJob(lr=0.2, prox_mu=0.3, clip_norm=0.5), added),  # FedDyn
        (LocalJob(lr=0.2, weight_decay=0.1, clip_norm=0.5), None),
        (LocalJob(lr=0.2, clip_norm=100.0), None),
    ):
        fused_model, plain_model = FlatModule(tiny, 1), FlatModule(tiny, 1)
        fused, plain = (
            step_for(fused_model, job, correction),
            AutogradStep(plain_model, job, correction),
        )
        assert isinstance(fused, FusedMLPStep)
        for _ in range(5):
            assert float(fused(x, y)) == pytest.approx(float(plain(x, y)), rel=1e-5)
        assert torch.allclose(fused_model.vector, plain_model.vector, atol=1e-6)
    assert isinstance(step_for(fused_model, LocalJob(momentum=0.9)), AutogradStep)


@pytest.mark.parametrize(
    "job", [LocalJob(lr=0.1), LocalJob(lr=0.1, prox_mu=0.3), LocalJob(lr=0.1, clip_norm=0.5)]
)
def test_corrections_are_added_to_every_gradient(shards, job):
    """The same as a loss with the linear term <correction, w>, whichever worker trains."""
    x, y = normalised(shards)
    rng = np.random.default_rng(0)
    added = rng.normal(scale=0.02, size=(2, 2410)).astype(np.float32)
    with (
        LocalRuntime(store_of(shards), tiny, workers=1) as alone,
        LocalRuntime(store_of(shards), tiny, workers=2) as team,
    ):
        start = alone.initial(0)
        team.initial(0)
        order = TrainOrder([1, 3], start[None], [0, 0], job, 0, 1, corrections=added)
        one, two = alone.train(order), team.train(order)
        without = alone.train(replace(order, corrections=None))
    assert one.params.tobytes() == two.params.tobytes()
    assert np.abs(one.params - without.params).max() > 1e-2
    for row, client in enumerate([1, 3]):
        model = module_with(tiny, start)
        mine = torch.from_numpy(np.array(shards.train.indices(client)))
        weights, order = (
            list(model.parameters()),
            stream(0, "batch", client, 1).permutation(len(mine)),
        )
        for begin in range(0, len(mine), job.batch):
            index = mine[torch.from_numpy(order[begin : begin + job.batch])]
            loss = nn.functional.cross_entropy(model(x[index]), y[index])
            gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, weights)])
            if job.clip_norm:
                gradient = gradient * min(1.0, job.clip_norm / float(gradient.norm()))
            now = torch.from_numpy(flat(model))
            now = now - job.lr * (
                gradient
                + torch.from_numpy(added[row])
                + job.prox_mu * (now - torch.from_numpy(start))
            )
            nn.utils.vector_to_parameters(now, weights)
        assert np.allclose(one.params[row], flat(model), atol=1e-5)


def test_proximal_term_holds_the_model_back(shards):
    with LocalRuntime(store_of(shards), tiny, workers=1) as runtime:
        start = runtime.initial(0)
        jobs = [LocalJob(lr=0.01, epochs=3, prox_mu=mu) for mu in (0.0, 1.0, 90.0)]
        orders = [TrainOrder([0], start[None], [0], job, seed=0, round=1) for job in jobs]
        ends = [runtime.train(order).params[0] for order in orders]
    drift = [np.linalg.norm(end - start) for end in ends]
    assert drift[0] > drift[1] > 5 * drift[2]


@pytest.mark.parametrize("dataset", ["digits", "mnist", "fmnist"])
def test_rounds_match_the_naive_loop(dataset):
    if not data.is_cached(dataset) and dataset != "digits":
        pytest.skip(f"{dataset} is not in the cache: fedskew data get {dataset}")
    settings = {"run.rounds": 3}
    if dataset != "digits":
        settings |= {
            "data.use": dataset,
            "data.clients": 100,
            "partition.alpha": 0.055,
            "run.evaluate_every": 0,
        }
        settings |= {"run.clients_per_round": 10, "local.lr": 0.005, "local.batch": 64}
    seen = []
    result = fedskew.run("fedavg", settings=settings, seed=1, workers=1, on_round=seen.append)
    recipe = result.recipe
    loaded = data.load(dataset)
    shards = build_shards(
        loaded,
        clients=recipe["data"]["clients"],
        partition="dirichlet",
        options={"alpha": recipe["partition"]["alpha"]},
        seed=1,
    )
    used = np.unique(
        np.concatenate([shards.train.indices(c.clients[0]) for r in seen for c in r.chains])
    )
    x = torch.zeros((len(shards.x), 1, *shards.x.shape[1:]))
    x[torch.from_numpy(used), 0] = torch.from_numpy(
        (shards.x[used].astype(np.float32) / 255 - shards.mean) / shards.std
    )
    y = torch.from_numpy(np.array(shards.y))
    with LocalRuntime(
        store_of(shards),
        lambda: models.build(recipe["model"]["use"], loaded.x.shape[1:], 10),
        workers=1,
    ) as runtime:
        model = module_with(
            lambda: models.build(recipe["model"]["use"], loaded.x.shape[1:], 10), runtime.initial(1)
        )
    local = {key: recipe["local"][key] for key in ("epochs", "batch", "lr")}
    for record in seen[1:]:
        model = fedavg_round(
            model,
            shards,
            [c.clients[0] for c in record.chains],
            x,
            y,
            seed=1,
            round=record.round,
            **local,
        )
    assert np.abs(flat(model) - result.models[0]).max() < 1e-5
    with torch.no_grad():
        index = torch.from_numpy(np.array(shards.central_test))
        xt = torch.from_numpy(
            (shards.x_test[shards.central_test].astype(np.float32) / 255 - shards.mean) / shards.std
        ).unsqueeze(1)
        hits = (model(xt).argmax(1).numpy() == np.array(shards.y_test)[index]).mean()
    assert abs(hits - result.evaluations[-1][1]) <= 1e-5 + 2 / len(index)


@pytest.mark.parametrize("factory", [tiny, convolutional])
@pytest.mark.parametrize("workers", [2, 3])
def test_bits_do_not_depend_on_workers_or_on_who_else_trains(shards, factory, workers):
    job = LocalJob(epochs=2, batch=16, lr=0.05, report_loss="start")
    with (
        LocalRuntime(store_of(shards), factory, workers=1) as alone,
        LocalRuntime(store_of(shards), factory, workers=workers) as team,
    ):
        start = alone.initial(3)
        assert np.array_equal(start, team.initial(3))
        models_ = np.stack([start, start * np.float32(0.9), start * np.float32(1.1)])
        clients, index = [5, 0, 3, 1, 7, 2, 6], [0, 1, 2, 0, 1, 2, 0]
        order = TrainOrder(clients, models_, index, job, seed=3, round=2)
        one, many = alone.train(order), team.train(order)
        assert one.failures == ("",) * 7
        assert one.params.tobytes() == many.params.tobytes()
        assert one.loss.tobytes() == many.loss.tobytes()
        single = team.train(order.only([2]))
        assert single.params[0].tobytes() == one.params[2].tobytes()
        central = [crew.evaluate(models_) for crew in (alone, team)]
        scoring = ScoreOrder(clients, models_, index, "train")
        own = [crew.score(scoring) for crew in (alone, team)]
        for a, b in (central, own):
            assert a.loss.tobytes() == b.loss.tobytes()
            assert a.accuracy.tobytes() == b.accuracy.tobytes()


def test_reported_losses_mean_what_they_say(shards):
    with LocalRuntime(store_of(shards), tiny, workers=1) as runtime:
        start = runtime.initial(0)[None]
        before = runtime.score(ScoreOrder([4], start, [0], "train")).loss[0]
        losses = {}
        for kind in ("start", "train", "end"):
            job = LocalJob(lr=0.1, epochs=3, report_loss=kind)
            reply = runtime.train(TrainOrder([4], start, [0], job, seed=0, round=1))
            losses[kind] = reply.loss[0]
        after = runtime.score(ScoreOrder([4], reply.params, [0], "train")).loss[0]
    assert losses["start"] == pytest.approx(before, rel=1e-5)
    assert losses["end"] == pytest.approx(after, rel=1e-5)
    assert losses["end"] < losses["train"] < losses["start"]


def test_a_sample_cap_draws_without_replacement_and_fills_small_clients():
    rng = np.random.default_rng(0)
    drawn = draw_rows(np.arange(100), 30, rng)
    assert len(set(drawn.tolist())) == 30
    filled = draw_rows(np.arange(4), 10, rng)
    assert sorted(np.bincount(filled).tolist()) == [2, 2, 3, 3]


class Moody(nn.Module):
    """Raises for one client's data: label 3 is never 'seen' without a tantrum."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.inner = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def forward(self, x):
        if self.training and len(x) == 13:
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("thirteen is unlucky")
        return self.inner(x)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_at_a_client_costs_one_update(workers):
    x, y = np.zeros((60, 8, 8), np.uint8), np.arange(60) % 10
    ids = np.repeat([0, 1, 2], [20, 13, 27])
    result = fedskew.run(
        {"run": {"rounds": 2, "clients_per_round": 3}, "local": {"batch": 30}},
        data=(x, y, x, y),
        clients=ids,
        model=lambda: Moody("raise"),
        workers=workers,
    )
    assert [r.failures for r in result.rounds[1:]] == [{1: "ValueError: thirteen is unlucky"}] * 2


def test_a_worker_that_dies_is_replaced_and_costs_one_update():
    """What else was lost with it is done again: the model is the one of a federation in which
    that client merely raised.
    """
    sizes = [20, 13, 17, 10, 25, 9, 21, 16]
    x = np.random.default_rng(0).integers(0, 255, (sum(sizes), 8, 8), dtype=np.uint8)
    y, ids = np.arange(len(x)) % 10, np.repeat(np.arange(8), sizes)
    killed, raised = (
        fedskew.run(
            {"run": {"rounds": 2, "clients_per_round": 8}, "local": {"batch": 30}},
            data=(x, y, x, y),
            clients=ids,
            model=lambda how=how: Moody(how),
            workers=workers,
        )
        for how, workers in (("kill", 2), ("raise", 1))
    )
    for record in killed.rounds[1:]:
        assert record.failures == {1: "worker process died (signal 9)"}
        assert sorted(record.loss) == [0, 2, 3, 4, 5, 6, 7]
    assert killed.models.tobytes() == raised.models.tobytes()


class Fatal(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        if self.training:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(x.flatten(1))


def test_workers_that_keep_dying_end_the_run_clearly():
    x, y = np.zeros((80, 8, 8), np.uint8), np.arange(80) % 10
    with pytest.raises(WorkerError, match="worker processes died in one round"):
        fedskew.run(
            {"run": {"rounds": 1, "clients_per_round": 8}},
            data=(x, y, x, y),
            clients=np.arange(80) // 10,
            model=Fatal,
            workers=2,
        )


def test_a_model_that_does_not_fit_the_data_is_one_clear_error():
    def wrong():
        return nn.Linear(3, 10)

    def broken():
        raise RuntimeError("no such layer")

    x, y = np.zeros((40, 8, 8), np.uint8), np.arange(40) % 10
    with pytest.raises(WorkerError, match="evaluation: RuntimeError"):
        fedskew.run(
            {"run": {"rounds": 1}, "data": {"clients": 2}},
            data=(x, y, x, y),
            model=wrong,
            workers=2,
        )
    with pytest.raises(RunError, match="model: RuntimeError: no such layer"):
        fedskew.run(
            {"run": {"rounds": 1}, "data": {"clients": 2}},
            data=(x, y, x, y),
            model=broken,
            workers=2,
        )


def workers():
    """Children of our children: the nursery stays, its copies do not."""
    mine = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [c for pid in mine for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_no_processes_and_no_torch_threads_are_left_behind(shards):
    before, threads = workers(), torch.get_num_threads()
    with LocalRuntime(store_of(shards), tiny, workers=2) as runtime:
        assert len(workers()) == len(before) + 2
        assert runtime.describe().layout.size == 2410
    with LocalRuntime(store_of(shards), tiny, workers=1):
        assert torch.get_num_threads() == 1
    assert workers() == before
    assert torch.get_num_threads() == threads


def test_batch_norm_buffers_and_counters_are_aggregated(shards):
    with LocalRuntime(store_of(shards), convolutional, workers=1) as runtime:
        layout = runtime.describe().layout
        assert [b.kind for b in layout.blocks][-3:] == ["buffer", "buffer", "counter"]
        start = runtime.initial(0)
        job = LocalJob(batch=32)
        reply = runtime.train(TrainOrder([0, 1], start[None], [0, 0], job, seed=0, round=1))
    counter = layout.blocks[-1].offset
    assert start[counter] == 0
    assert reply.params[:, counter].tolist() == reply.steps.tolist()
    assert layout.bytes == 4 * (layout.size - 1) + 8
