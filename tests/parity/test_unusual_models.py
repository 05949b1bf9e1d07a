"""Models that are legal and unusual: tied weights, spare outputs, memory of their own, parts that
nobody uses. Each is trained as plain PyTorch trains it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from naive import flat, train_client  # noqa: E402
from torch import nn  # noqa: E402

from fedskew import data  # noqa: E402
from fedskew.data import build_shards  # noqa: E402
from fedskew.experiment.world import store_of  # noqa: E402
from fedskew.runtime.local.flat import FlatModule  # noqa: E402
from fedskew.runtime.local.runtime import LocalRuntime  # noqa: E402
from fedskew.runtime.local.step import AutogradStep, step_for  # noqa: E402
from fedskew.streams import stream  # noqa: E402
from fedskew.types import LocalJob, ScoreOrder, TrainOrder  # noqa: E402

# ---------------------------------------------------------------- tied weights


def tied_weights():
    layers = [nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10)]
    layers[2].weight = layers[0].weight
    return nn.Sequential(*layers)


def tied_biases():
    layers = [nn.Linear(16, 10), nn.ReLU(), nn.Linear(10, 10)]
    layers[2].bias = layers[0].bias
    return nn.Sequential(*layers)


def one_layer_twice():
    layer = nn.Linear(16, 16)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(16, 10))


@pytest.mark.parametrize("factory", [tied_weights, tied_biases, one_layer_twice])
@pytest.mark.parametrize("clip", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_tied_layers_share_one_gradient(factory, clip, decay):
    torch.manual_seed(0)
    x, y = torch.randn(12, 16), torch.randint(0, 10, (12,))
    model, plain = FlatModule(factory, 1), FlatModule(factory, 1).module
    step = step_for(model, LocalJob(lr=0.3, clip_norm=clip, weight_decay=decay))
    weights = list(plain.parameters())
    for _ in range(5):
        loss = nn.functional.cross_entropy(plain(x), y)
        assert float(step(x, y)) / len(y) == pytest.approx(loss.item(), rel=1e-5)
        gradients = torch.autograd.grad(loss, weights)
        length = torch.cat([g.reshape(-1) for g in gradients]).norm()
        scale = min(1.0, clip / float(length)) if clip else 1.0
        with torch.no_grad():
            for w, g in zip(weights, gradients, strict=True):
                w -= 0.3 * (scale * g + decay * w)
    assert np.allclose(model.trained.numpy(), flat(plain), atol=1e-6)


def test_a_model_of_one_weight():
    torch.manual_seed(0)
    x, y = torch.randn(12, 6), torch.randint(0, 4, (12,))

    def alone():
        return nn.Linear(6, 4, bias=False)

    model, plain = FlatModule(alone, 1), FlatModule(alone, 1).module
    step = AutogradStep(model, LocalJob(lr=0.3))
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.3)
    for _ in range(3):
        step(x, y)
        optimiser.zero_grad()
        nn.functional.cross_entropy(plain(x), y).backward()
        optimiser.step()
    assert np.allclose(model.trained.numpy(), flat(plain), atol=1e-6)


# ---------------------------------------------------------------- more outputs than classes


@pytest.fixture(scope="module")
def shards():
    return build_shards(
        data.load("digits"), clients=5, partition="dirichlet", options={"alpha": 0.5}, seed=0
    )


def images_of(shards, client):
    rows = np.array(shards.train.indices(client))
    x = (shards.x[rows].astype(np.float32) / 255 - shards.mean) / shards.std
    return torch.from_numpy(x).unsqueeze(1), torch.from_numpy(np.array(shards.y)[rows])


def module_with(factory, vector):
    model = FlatModule(factory, 0)
    model.read(vector)
    return model.module


def outputs(number):
    return lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, number))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_linear_layer_may_have_more_outputs_than_there_are_classes(shards, workers):
    job = LocalJob(epochs=2, batch=16, lr=0.1)
    with LocalRuntime(store_of(shards), outputs(13), workers=workers) as runtime:
        start = runtime.initial(0)
        got = runtime.train(TrainOrder(range(5), start[None], [0] * 5, job, seed=9, round=3))
        scores = runtime.score(ScoreOrder(range(5), got.params, range(5), "train"))
    assert got.failures == ("",) * 5
    for client in range(5):
        x, y = images_of(shards, client)
        rng = stream(9, "batch", client, 3)
        plain = module_with(outputs(13), start)
        plain = train_client(plain, x, y, epochs=2, batch=16, lr=0.1, rng=rng)
        assert np.allclose(got.params[client], flat(plain), atol=2e-5)
        loss = nn.functional.cross_entropy(plain(x), y).item()
        assert scores.loss[client] == pytest.approx(loss, abs=1e-4)


@pytest.mark.parametrize("workers", [1, 2])
def test_too_few_outputs_cost_the_clients_that_have_such_a_label(workers, shards):
    """As cross_entropy says: whoever has a label without an output cannot train, others can."""
    with LocalRuntime(store_of(shards), outputs(9), workers=workers) as runtime:
        model, job = runtime.initial(0)[None], LocalJob()
        replies = runtime.train(TrainOrder(range(5), model, [0] * 5, job, seed=0, round=1))
        nines = runtime.label_counts()[:, 9] > 0
    assert (~replies.ok).tolist() == nines.tolist()
    assert nines.any()
    assert not nines.all()


# ---------------------------------------------------------------- memory outside the flat vector


class Remembering(nn.Module):
    """Counts its batches in one place or another, and lets the count change what it says."""

    def __init__(self, where):
        super().__init__()
        self.where = where
        self.layer = nn.Linear(64, 10)
        kind = torch.int64 if "integer" in where else torch.float32
        start = torch.zeros(2, dtype=torch.bool if "boolean" in where else kind)
        if "frozen" in where:
            self.seen = nn.Parameter(start, requires_grad=False)
        else:
            self.register_buffer("seen", start, persistent="not kept" not in where)

    def forward(self, x):
        with torch.no_grad():
            if "boolean" in self.where:
                self.seen[0] = ~self.seen[0]
            elif "new data" in self.where:
                self.seen.data = self.seen.data + 1
            elif "data" in self.where:
                self.seen.data += 1
            elif "anew" in self.where:
                self.seen = self.seen + 1
            else:
                self.seen += 1
        return self.layer(x.flatten(1)) * (1 + self.seen[0].float() / 10)


class Shortening(nn.Module):
    """A frozen embedding that torch itself shortens when it is looked up."""

    def __init__(self):
        super().__init__()
        weight = torch.arange(20.0).reshape(2, 10)
        self.table = nn.Embedding(2, 10, _weight=weight, _freeze=True, max_norm=1.0)
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        bent = self.table.weight[0].sum().detach().clone()
        self.table(torch.zeros(1, dtype=torch.int64))
        return self.layer(x.flatten(1)) * (1 + bent / 100)


PLACES = [
    "integer",
    "boolean",
    "frozen",
    "frozen, by data",
    "frozen, by new data",
    "float, by new data",
    "not kept",
    "not kept, made anew",
    "integer, made anew",
    "float, made anew",
    "float",
]
KEEPERS = {place: lambda place=place: Remembering(place) for place in PLACES}


@pytest.mark.parametrize("keeper", [*KEEPERS, "embedding"])
def test_what_a_model_remembers_does_not_reach_the_next_client(shards, keeper):
    job = LocalJob(epochs=2, batch=16, lr=0.05)
    with LocalRuntime(store_of(shards), KEEPERS.get(keeper, Shortening), workers=1) as alone:
        start = alone.initial(0)
        order = TrainOrder(range(5), start[None], [0] * 5, job, seed=0, round=1)
        first, second = alone.train(order), alone.train(order)
        backwards = alone.train(order.only([4, 3, 2, 1, 0]))
        scores = [alone.evaluate(first.params) for _ in range(2)]
    assert first.failures == ("",) * 5
    assert np.abs(first.params - start).max() > 1e-3
    for other in (second.params, backwards.params[::-1]):
        assert first.params.tobytes() == other.tobytes()
    assert scores[0].loss.tobytes() == scores[1].loss.tobytes()


@pytest.mark.parametrize("keeper", ["integer", "frozen, by data", "not kept", "embedding"])
def test_nor_does_it_depend_on_who_else_works(shards, keeper):
    """Workers are other processes, which take seconds to read this file: four of the twelve."""
    results = []
    for workers in (1, 2):
        factory = KEEPERS.get(keeper, Shortening)
        with LocalRuntime(store_of(shards), factory, workers=workers) as runtime:
            model, job = runtime.initial(0)[None], LocalJob(epochs=2, batch=16, lr=0.05)
            order = TrainOrder(range(5), model, [0] * 5, job, seed=0, round=1)
            trained = runtime.train(order).params
            results.append((trained.tobytes(), runtime.evaluate(trained).loss.tobytes()))
    assert results[0] == results[1]


@pytest.mark.parametrize("place", PLACES)
def test_which_loss_is_reported_does_not_change_the_training(shards, place):
    """A model is scored before or after: what it remembers of that is no part of its training."""
    with LocalRuntime(store_of(shards), KEEPERS[place], workers=1) as runtime:
        model = runtime.initial(0)[None]
        ends = [
            runtime.train(TrainOrder([0], model, [0], LocalJob(report_loss=kind), seed=0, round=1))
            for kind in ("train", "start", "end")
        ]
    assert [end.failures for end in ends] == [("",)] * 3
    assert len({end.params.tobytes() for end in ends}) == 1


@pytest.mark.parametrize("place", ["float", "float, made anew", "float, by new data"])
def test_a_float_buffer_travels_however_forward_writes_it(shards, place):
    """Whether it is changed in place or replaced by another tensor."""
    with LocalRuntime(store_of(shards), KEEPERS[place], workers=1) as runtime:
        (block,) = [b for b in runtime.describe().layout.blocks if b.name == "seen"]
        model = runtime.initial(0)[None]
        replies = runtime.train(TrainOrder([0, 1], model, [0, 0], LocalJob(), seed=0, round=1))
        again = TrainOrder([0, 1], replies.params, [0, 1], LocalJob(), seed=0, round=2)
        after = runtime.train(again)
    assert replies.params[:, block.offset].tolist() == replies.steps.tolist()
    assert after.params[:, block.offset].tolist() == (2 * replies.steps).tolist()


class Constrained(nn.Module):
    """Shortens its weights in every forward pass, in place or by giving them new memory."""

    def __init__(self, in_place):
        super().__init__()
        self.in_place = in_place
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        shorter = torch.renorm(self.layer.weight.data, 2, 0, 0.5)
        if self.in_place:
            self.layer.weight.data.copy_(shorter)
        else:
            self.layer.weight.data = shorter
        return self.layer(x.flatten(1))


def test_a_weight_that_forward_moves_elsewhere_is_refused(shards):
    """It would be trained where nobody looks. Changed in place it is trained like any other."""
    replies = {}
    for in_place in (True, False):
        with LocalRuntime(store_of(shards), partial(Constrained, in_place), workers=1) as runtime:
            model = runtime.initial(0)[None]
            order = TrainOrder([0, 1], model, [0, 0], LocalJob(lr=0.1), seed=0, round=1)
            replies[in_place] = runtime.train(order)
    assert replies[True].failures == ("", "")
    lengths = np.linalg.norm(replies[True].params[0, :640].reshape(10, 64), axis=1)
    assert lengths.max() < 1.0, "the last step may lead out of 0.5, but not far"
    assert all("forward replaces its memory" in why for why in replies[False].failures)


# ---------------------------------------------------------------- parts that forward does not use


class Idle(nn.Module):
    """A layer that never takes part, and one that takes part in some batches only."""

    def __init__(self):
        super().__init__()
        self.never = nn.Linear(3, 3)
        self.layer = nn.Linear(64, 10)
        self.sometimes = nn.Linear(10, 10)

    def forward(self, x):
        out = self.layer(x.flatten(1))
        return self.sometimes(out) if x[0, 0, 2, 2] > 0 else out


def idle_beside_a_plain_network():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))
    model.register_parameter("never", nn.Parameter(torch.ones(4)))
    return model


def idle_beside_one_layer():
    model = outputs(10)()
    model.register_parameter("never", nn.Parameter(torch.ones(4)))
    return model


IDLE_JOBS = [
    LocalJob(lr=0.1, weight_decay=0.05),
    LocalJob(lr=0.05, momentum=0.9, weight_decay=0.05),
    LocalJob(lr=0.05, momentum=0.9),
    LocalJob(lr=0.01, optimizer="adam", weight_decay=0.05),
    LocalJob(lr=0.05, momentum=0.5, weight_decay=0.05, prox_mu=0.3),  # holds every weight
]


@pytest.mark.parametrize("factory", [Idle, idle_beside_a_plain_network, idle_beside_one_layer])
@pytest.mark.parametrize("job", IDLE_JOBS, ids=lambda j: f"{j.optimizer}-m{j.momentum}-{j.prox_mu}")
def test_weights_without_a_gradient_stay_as_torch_optim_leaves_them(shards, factory, job):
    job = replace(job, epochs=3, batch=8)
    x, y = images_of(shards, 2)
    with LocalRuntime(store_of(shards), factory, workers=1) as runtime:
        start = runtime.initial(4)
        got = runtime.train(TrainOrder([2], start[None], [0], job, seed=9, round=3))
    plain = train_client(
        module_with(factory, start),
        x,
        y,
        epochs=3,
        batch=8,
        lr=job.lr,
        momentum=job.momentum,
        weight_decay=job.weight_decay,
        prox_mu=job.prox_mu,
        optimizer=job.optimizer,
        rng=stream(9, "batch", 2, 3),
    )
    assert np.abs(got.params[0] - start).max() > 1e-3
    assert np.allclose(got.params[0], flat(plain), atol=2e-5)


def test_some_batches_of_the_idle_model_leave_a_part_out(shards):
    """Otherwise the test above would not see weights that come and go."""
    x, _ = images_of(shards, 2)
    order = stream(9, "batch", 2, 3).permutation(len(x))
    firsts = x[torch.from_numpy(order[::8].copy()), 0, 2, 2] > 0
    assert firsts.any()
    assert not firsts.all()


def test_an_idle_weight_beside_a_plain_network_is_not_fused():
    model = FlatModule(idle_beside_a_plain_network, 0)
    assert isinstance(step_for(model, LocalJob(weight_decay=0.1)), AutogradStep)
