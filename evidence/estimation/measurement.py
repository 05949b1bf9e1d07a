"""The cells of the estimation tables, and how one of them is measured.

Every cell is the shipped path: :func:`fedskew.loop.probe.head_updates` on a local runtime, read by
:func:`fedskew.signal.estimated`. ``rlu`` and ``bias_start`` (bias_linear that knows the start
model's mean softmax) look at 100 auxiliary inputs, ten of each class, which are taken out of the
training rows before these are dealt out: no client owns one. Test rows are never used.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import numpy as np
from torch import nn

from fedskew import models
from fedskew.data import Dataset, Shards, build_shards, load
from fedskew.experiment.world import store_of
from fedskew.loop.probe import head_updates
from fedskew.runtime.local.runtime import LocalRuntime
from fedskew.signal.estimated import estimated
from fedskew.signal.estimators import estimate
from fedskew.signal.quality import estimation_quality
from fedskew.types import Floats, HeadUpdates, Ints

CLIENTS, AUXILIARY, WHOLE = 20, 100, 1 << 20
# the order of METHODS 8.3
SHIPPED = ("eq7_raw", "sqrt_raw", "eq7_delta", "sqrt_delta", "bias_linear", "rlu")
ESTIMATORS = (*SHIPPED, "bias_start", "uniform")
FIGURES = (
    "total_variation",
    "kappa_support",
    "kappa_floor",
    "false_mass",
    "presence_precision",
    "presence_recall",
)
SPLITS: dict[str, tuple[str, dict[str, Any]]] = {
    "Dir .5": ("dirichlet", {"alpha": 0.5}),
    "Dir .1": ("dirichlet", {"alpha": 0.1}),
    "CCDD 2": ("class_limited", {"classes_per_client": 2}),
    "Dir .5 uncapped": ("dirichlet_plain", {"alpha": 0.5}),
}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "digits": ("mlp", {"hidden": (64,)}),
    "fmnist": ("mlp", {"hidden": (200, 200)}),
    "cifar10": ("cnn_lenet", {}),
}
INITS = {  # name -> (Glorot in every layer?, start of the output layer)
    "bacsa": (False, "bacsa"),
    "torch": (False, "default"),
    "glorot": (True, "default"),
    "bacsa, Glorot body": (True, "bacsa"),
}
# all clients, one core: only for the progress bar
EPOCH_SECONDS = {"digits": 0.03, "fmnist": 1.4, "cifar10": 10.0}


@dataclass(frozen=True)
class Cell:
    """One line of a table: a federation, a probe and a start."""

    table: str  # methods | open | larger | step
    dataset: str
    split: str
    epochs: int
    lr: float
    init: str
    seeds: int
    pixels: str = "standardised"  # or "0..1"
    batch: int = 32  # WHOLE: one step on everything a client has


def cells() -> list[Cell]:
    """Everything the page shows."""
    probes = [
        ("Dir .5", 1, 0.01),
        ("Dir .5", 5, 0.01),
        ("Dir .1", 5, 0.01),
        ("Dir .5", 5, 0.1),
        ("Dir .5", 20, 0.1),
    ]
    probes += [
        ("CCDD 2", 5, 0.01),
        ("Dir .5", 1, 0.001),
        ("Dir .1", 1, 0.001),
        ("CCDD 2", 1, 0.001),
    ]
    digits = [
        Cell("methods", "digits", *probe, init, 3)
        for probe in probes
        for init in ("bacsa", "torch", "glorot")
    ]
    unsaid = [
        Cell("open", "digits", split, epochs, 0.01, init, 3, pixels)
        for epochs in (1, 5)
        for split in ("Dir .5", "Dir .5 uncapped")
        for pixels in ("standardised", "0..1")
        for init in ("bacsa", "bacsa, Glorot body")
    ]
    # (epochs, lr, seeds): what fits into minutes. Nothing is left out of the training sets: the
    # steps decide the error.
    plan = {
        "fmnist": [(1, 0.01, 3), (5, 0.01, 3), (1, 0.001, 3), (1, 0.0001, 3)],
        "cifar10": [(1, 0.01, 2), (5, 0.01, 1), (1, 0.001, 1)],
    }
    starts = {"fmnist": ("bacsa", "torch", "glorot"), "cifar10": ("bacsa", "glorot")}
    larger = [
        Cell("larger", dataset, split, epochs, lr, init, seeds)
        for dataset, probes_of in plan.items()
        for split in ("Dir .5", "Dir .1", "CCDD 2")
        for epochs, lr, seeds in probes_of
        for init in starts[dataset]
    ]
    step = [
        Cell("step", dataset, split, 1, 0.01, init, seeds, batch=WHOLE)
        for dataset, seeds in (("digits", 3), ("fmnist", 3), ("cifar10", 1))
        for split in ("Dir .5", "Dir .1", "CCDD 2")
        for init in ("bacsa", "torch", "glorot")
    ]
    return digits + unsaid + larger + step


# ---------------------------------------------------------------- one cell


def build(dataset: Dataset, init: str) -> nn.Module:
    """A fresh network. torch starts a Linear or Conv2d Kaiming-uniform with a = sqrt 5, that is
    within 1 / sqrt(fan in).
    """
    glorot, head = INITS[init]
    name, options = NETWORKS[dataset.name]

    def network(shape: tuple[int, ...], num_classes: int) -> nn.Module:
        module: nn.Module = models.MODELS[name](shape, num_classes, **options)
        for layer in module.modules() if glorot else ():
            if isinstance(layer, nn.Linear | nn.Conv2d) and layer.bias is not None:
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        return module

    return models.build(
        network, dataset.x.shape[1:], dataset.num_classes, head_init=cast(models.HeadInit, head)
    )


def divide(dataset: Dataset, split: str, seed: int) -> Shards:
    """Put the auxiliary rows aside, then deal out all others."""
    rule, options = SPLITS[split]
    return build_shards(
        dataset,
        clients=CLIENTS,
        partition=rule,
        options=options,
        client_test="none",
        auxiliary=AUXILIARY,
        seed=seed,
    )


def run_cell(cell: Cell, seed: int) -> dict[str, dict[str, float]]:
    """Estimator -> quality figures, for one seed."""
    dataset = load(cell.dataset)
    if cell.pixels == "0..1":  # digits have 17 grey levels, 0 to 16
        dataset = replace(
            dataset, mean=np.zeros((), np.float32), std=np.full((), 16 / 255, np.float32)
        )
    shards = divide(dataset, cell.split, seed)
    probe = {
        "probe": "all",
        "method": "rlu",
        "epochs": cell.epochs,
        "batch": cell.batch,
        "lr": cell.lr,
    }
    with LocalRuntime(store_of(shards), lambda: build(dataset, cell.init), workers=1) as runtime:
        first = runtime.initial(seed)
        softmax = runtime.auxiliary(first[None]).class_softmax[0].mean(axis=0)
        probed = head_updates(runtime, runtime.describe(), first, seed, CLIENTS, probe)
        updates = probed.updates
    some = shards.train.sizes > 0  # only the uncapped Dirichlet may leave a client without examples
    assert (updates.answered == some).all()
    rows = {
        name: estimated(updates, method=cast(Any, name), lr=cell.lr).rows[some] for name in SHIPPED
    }
    rows["bias_start"] = from_start(updates, softmax, cell.lr)
    rows["uniform"] = np.full_like(rows["rlu"], 1 / dataset.num_classes)
    sizes = shards.train.sizes[some]
    return {
        name: figures(shards.label_counts[some] / sizes[:, None], rows[name], sizes)
        for name in ESTIMATORS
    }


def from_start(updates: HeadUpdates, softmax: Floats, lr: float) -> Floats:
    """``bias_linear`` told what the received model answers on average, instead of 1 / C."""
    assert updates.bias is not None
    assert updates.received_bias is not None
    seen = updates.answered
    moved = updates.bias[seen] - updates.received_bias
    return estimate(None, moved, lr=lr, steps=updates.steps[seen], initial_softmax=softmax)


def figures(truth: Floats, rows: Floats, sizes: Ints) -> dict[str, float]:
    """METHODS 8.4 as plain numbers; kappa is the mean over classes."""
    quality = asdict(estimation_quality(truth, rows, sizes))
    return {name: float(np.nanmean(quality[name])) for name in FIGURES}
