"""How well a short probe reveals the clients' label mixes: one cell of the tables.

Every cell is the shipped path: :func:`fedskew.loop.probe.head_updates` on a local runtime, read by
:func:`fedskew.signal.estimated`. ``rlu`` and ``bias_start`` (bias_linear that knows the start
model's mean softmax) look at 100 auxiliary inputs, ten of each class, which are taken out of the
training rows before these are dealt out: no client owns one. Test rows are never used.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, cast

import numpy as np
from torch import nn

from fedskew import models
from fedskew.data import Dataset
from fedskew.evidence.cells import Cell
from fedskew.experiment.world import dataset_of, shards_of, store_of
from fedskew.loop.probe import head_updates
from fedskew.runtime.local.runtime import LocalRuntime
from fedskew.signal.estimated import estimated
from fedskew.signal.estimators import estimate
from fedskew.signal.quality import estimation_quality
from fedskew.types import Floats, HeadUpdates, Ints

SHIPPED = {
    "eq7_raw": "eq7 raw",
    "sqrt_raw": "√ raw",
    "eq7_delta": "eq7 Δ",
    "sqrt_delta": "√ Δ",
    "bias_linear": "bias-linear",
    "rlu": "RLU",
}
TITLES = {**SHIPPED, "bias_start": "bias-linear s₀", "uniform": "uniform"}
FIGURES = (
    *("total_variation", "kappa_support", "kappa_floor"),
    *("false_mass", "presence_precision", "presence_recall"),
)
STARTS = {  # label -> (Glorot in every layer?, start of the output layer)
    "bacsa": (False, "bacsa"),
    "torch": (False, "default"),
    "glorot": (True, "default"),
    "bacsa, Glorot body": (True, "bacsa"),
}
# of an epoch of all clients on one core: only for the time left
EPOCH_SECONDS = {"digits": 0.03, "fmnist": 1.4, "cifar10": 10.0}


def probe(cell: Cell) -> list[dict[str, Any]]:
    """A row per estimator: how far its label mixes are from the true ones."""
    dataset = pixels(dataset_of(cell.recipe), cell.options)
    shards = shards_of(cell.recipe, dataset, cell.seed)
    lr, start = float(cell.options["lr"]), str(cell.options["start"])
    how = {name: cell.options[name] for name in ("epochs", "batch", "lr")}
    with LocalRuntime(store_of(shards), lambda: build(cell, dataset, start), workers=1) as runtime:
        first = runtime.initial(cell.seed)
        softmax = runtime.auxiliary(first[None]).class_softmax[0].mean(axis=0)
        asked = {"probe": "all", "method": "rlu", "start": "model", **how}
        about = runtime.describe()
        probed = head_updates(runtime, about, first, cell.seed, shards.clients, asked)
    updates = probed.updates
    some = shards.train.sizes > 0  # only the uncapped Dirichlet may leave a client without examples
    assert (updates.answered == some).all()
    rows = {n: estimated(updates, method=cast(Any, n), lr=lr).rows[some] for n in SHIPPED}
    rows["bias_start"] = from_start(updates, softmax, lr)
    rows["uniform"] = np.full_like(rows["rlu"], 1 / dataset.num_classes)
    sizes = shards.train.sizes[some]
    truth = shards.label_counts[some] / sizes[:, None]
    return [
        {"of": {"estimator": title}, **figures(truth, rows[name], sizes)}
        for name, title in TITLES.items()
    ]


def pixels(dataset: Dataset, options: Mapping[str, Any]) -> Dataset:
    """Standardised as always, or digits from 0 to 1: they have 17 grey levels, 0 to 16."""
    if options.get("pixels", "standardised") == "standardised":
        return dataset
    return replace(dataset, mean=np.zeros((), np.float32), std=np.full((), 16 / 255, np.float32))


def build(cell: Cell, dataset: Dataset, start: str) -> nn.Module:
    """A fresh network. torch starts a Linear or Conv2d Kaiming-uniform with a = sqrt 5, that is
    within 1 / sqrt(fan in).
    """
    glorot, head = STARTS[start]
    ours = ("use", *inspect.signature(models.build).parameters)  # what any model takes
    named = {k: v for k, v in cell.recipe["model"].items() if k not in ours}

    def network(shape: tuple[int, ...], num_classes: int) -> nn.Module:
        module: nn.Module = models.MODELS[cell.recipe["model"]["use"]](shape, num_classes, **named)
        for layer in module.modules() if glorot else ():
            if isinstance(layer, nn.Linear | nn.Conv2d) and layer.bias is not None:
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        return module

    shape = dataset.x.shape[1:]
    return models.build(network, shape, dataset.num_classes, head_init=cast(Any, head))


def from_start(updates: HeadUpdates, softmax: Floats, lr: float) -> Floats:
    """``bias_linear`` told what the received model answers on average, instead of 1 / C."""
    assert updates.bias is not None
    assert updates.received_bias is not None
    seen = updates.answered
    moved = updates.bias[seen] - updates.received_bias
    return estimate(None, moved, lr=lr, steps=updates.steps[seen], initial_softmax=softmax)


def figures(truth: Floats, rows: Floats, sizes: Ints) -> dict[str, float]:
    """Quality as plain numbers; kappa is the mean over classes."""
    quality = asdict(estimation_quality(truth, rows, sizes))
    return {name: float(np.nanmean(quality[name])) for name in FIGURES}


def work(cell: Cell) -> float:
    """Expected seconds, for the time left."""
    return EPOCH_SECONDS.get(cell.recipe["data"]["use"], 2.0) * int(cell.options["epochs"]) + 0.3
