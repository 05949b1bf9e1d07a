"""On the real local runtime: what each optimiser equals when its knob is off, and where each
differs from FedAvg when it is on.

docs/methods.md 5, "Tests common to all". Every run is a few rounds on digits.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from naive import flat  # noqa: E402

import fedskew  # noqa: E402
from fedskew import data, models  # noqa: E402
from fedskew.data import build_shards  # noqa: E402
from fedskew.runtime.local.flat import FlatModule  # noqa: E402

BASE = {
    "data": {"use": "digits", "clients": 6},
    "local": {"epochs": 2, "batch": 16, "lr": 0.1},
    "run": {"rounds": 3, "clients_per_round": 4, "evaluate_every": 0},
}
SKEWED = {**BASE, "partition": {"use": "dirichlet", "alpha": 0.3}}


def model_of(recipe, **settings):
    return fedskew.run(recipe, settings=settings, seed=2, workers=1).models[0]


@pytest.fixture(scope="module")
def fedavg():
    """Models of FedAvg: (recipe, settings) -> parameters, each trained once."""
    return {
        "skewed": model_of(SKEWED),
        "equal": model_of({**BASE, "partition": {"use": "iid"}}),
        "uniform, one round": model_of(
            SKEWED, **{"aggregation.weights": "uniform", "run.rounds": 1}
        ),
    }


def test_one_client_is_centralised_sgd():
    """Full batches: round t is one gradient step on all the examples."""
    lr, rounds = 0.5, 4
    recipe = {"data": {"use": "digits", "clients": 1}, "local": {"batch": 10**6, "lr": lr}}
    got = model_of(
        recipe, **{"run.rounds": rounds, "run.clients_per_round": 1, "model.use": "tiny_mlp"}
    )
    shards = build_shards(data.load("digits"), clients=1, partition="iid", seed=2)
    rows = np.array(shards.train.indices(0))
    x = torch.from_numpy(
        (shards.x[rows].astype(np.float32) / 255 - shards.mean) / shards.std
    ).unsqueeze(1)
    y = torch.from_numpy(np.array(shards.y)[rows])
    module = FlatModule(lambda: models.build("tiny_mlp", (8, 8), 10), 2).module
    optimizer = torch.optim.SGD(module.parameters(), lr=lr)
    for _ in range(rounds):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    assert np.abs(got - flat(module)).max() < 1e-6


@pytest.mark.parametrize(
    ("settings", "world"),
    [
        ({"local.prox_mu": 0.0}, "skewed"),
        ({"aggregation.use": "momentum", "aggregation.beta": 0.0}, "skewed"),
        ({"aggregation.use": "nova"}, "equal"),
        ({"aggregation.use": "scaffold", "run.rounds": 1}, "uniform, one round"),
    ],
    ids=["fedprox-mu-0", "fedavgm-beta-0", "fednova-equal-steps", "scaffold-first-round"],
)
def test_the_knob_off_is_fedavg(fedavg, settings, world):
    recipe = {**BASE, "partition": {"use": "iid"}} if world == "equal" else SKEWED
    assert np.abs(model_of(recipe, **settings) - fedavg[world]).max() < 1e-6


@pytest.mark.parametrize(
    "settings",
    [
        {"local.prox_mu": 0.5},
        {"aggregation.use": "momentum", "aggregation.beta": 0.7},
        {"aggregation.use": "nova"},
        {"aggregation.use": "dyn", "aggregation.alpha": 0.1},
        {"aggregation.use": "scaffold"},
        {"aggregation.use": "adaptive", "aggregation.rule": "adagrad"},
        {"aggregation.use": "adaptive", "aggregation.rule": "adam"},
        {"aggregation.use": "adaptive", "aggregation.rule": "yogi"},
    ],
    ids=lambda s: "-".join(str(v) for v in s.values()),
)
def test_the_knob_on_is_not(fedavg, settings):
    assert np.abs(model_of(SKEWED, **settings) - fedavg["skewed"]).max() > 1e-3


def test_a_strong_proximal_term_keeps_the_model_where_it_was():
    """mu -> infinity: W_i -> W (docs/methods.md 5; lr x mu stays below 1, else SGD itself
    diverges).
    """
    start = model_of(SKEWED, **{"local.lr": 0.0, "run.rounds": 1})
    moved = [
        np.linalg.norm(model_of(SKEWED, **{"local.lr": 0.001, "local.prox_mu": mu}) - start)
        for mu in (0.0, 100.0, 900.0)
    ]
    assert moved[0] > 2 * moved[1] > 6 * moved[2]
