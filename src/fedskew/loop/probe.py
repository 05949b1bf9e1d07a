"""The probe behind estimated signals: every client trains briefly from the first model; only the
output layer is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedskew.accounting.traffic import probe_transfers
from fedskew.errors import RecipeError
from fedskew.types import (
    Block,
    Description,
    HeadUpdates,
    Ids,
    Layout,
    LocalJob,
    Params,
    Runtime,
    TrainOrder,
    Transfer,
)

AT_ONCE = 64  # clients whose whole models are in memory at the same time
# first and second attempt: batch orders that no training round uses
PROBE_ROUNDS = (1 << 31, (1 << 31) + 1)


def find_head(layout: Layout, num_classes: int) -> tuple[Block, Block | None]:
    """Weight and bias of the output layer: the last matrix with one row per class, and the
    vector named beside it.
    """
    matrices = [
        b
        for b in layout.blocks
        if b.kind == "weight" and len(b.shape) == 2 and b.shape[0] == num_classes
    ]
    if not matrices:
        raise RecipeError(
            "signal.estimated",
            "the model has no linear output layer",
            "Use signal.use = 'histogram'",
        )
    weight = matrices[-1]
    name = weight.name.removesuffix("weight") + "bias"
    return weight, next(
        (b for b in layout.blocks if b.name == name and b.shape == (num_classes,)), None
    )


def head_slices(layout: Layout, num_classes: int) -> list[slice]:
    """Where the output layer lies in the flat vector: its weight, then its bias."""
    return [
        slice(block.offset, block.stop)
        for block in find_head(layout, num_classes)
        if block is not None
    ]


def head_shape(layout: Layout, num_classes: int) -> tuple[int, int]:
    """(C, L) of the output layer, (0, 0) for a model without one."""
    try:
        shape = find_head(layout, num_classes)[0].shape
    except RecipeError:
        return 0, 0
    return shape[0], shape[1]


def silent_at_probe(updates: HeadUpdates) -> dict[int, str]:
    """Clients that were probed twice and gave nothing usable."""
    return {
        int(c): "no usable reply to the probe"
        for c in np.flatnonzero(~updates.answered & (updates.num_examples > 0))
    }


def head_updates(
    runtime: Runtime,
    description: Description,
    initial: Params,
    seed: int,
    budget: int,
    options: Mapping[str, Any],
) -> tuple[HeadUpdates, tuple[Transfer, ...]]:
    """Train everybody from ``initial`` and keep the output layers. A client that fails is asked
    once more.
    """
    population, classes = description.population, description.num_classes
    weight, bias = find_head(description.layout, classes)
    job = LocalJob(epochs=options["epochs"], batch=options["batch"], lr=options["lr"])
    size = AT_ONCE if options["probe"] == "all" else budget
    weights = np.zeros((population.size, *weight.shape))
    biases = np.zeros((population.size, classes))
    confusion = (
        np.zeros((population.size, classes, classes)) if options.get("method") == "rlu" else None
    )
    before = runtime.auxiliary(initial[None]).class_softmax[0] if confusion is not None else 0.0
    steps, answered = np.ones(population.size, np.int64), np.zeros(population.size, np.bool_)
    asked = uploads = 0
    for round in PROBE_ROUNDS:
        waiting = np.flatnonzero((population.num_examples > 0) & ~answered)
        for begin in range(0, len(waiting), size):
            clients: Ids = waiting[begin : begin + size]
            start = np.zeros(len(clients), np.int64)
            order = TrainOrder(clients, initial[None], start, job, seed=seed, round=round)
            replies = runtime.train(order)
            asked, uploads = asked + len(clients), uploads + int(replies.sent.sum())
            good = np.asarray(clients)[replies.ok]
            weights[good] = replies.params[replies.ok, weight.offset : weight.stop].reshape(
                -1, *weight.shape
            )
            if bias is not None:
                biases[good] = replies.params[replies.ok, bias.offset : bias.stop]
            if confusion is not None and len(good):
                confusion[good] = (
                    before + runtime.auxiliary(replies.params[replies.ok]).class_softmax
                ) / 2
            steps[good], answered[good] = replies.steps[replies.ok], True
    updates = HeadUpdates(
        received_weight=initial[weight.offset : weight.stop]
        .reshape(weight.shape)
        .astype(np.float64),
        weight=weights,
        received_bias=None if bias is None else initial[bias.offset : bias.stop].astype(np.float64),
        bias=None if bias is None else biases,
        steps=steps,
        answered=answered,
        num_examples=population.num_examples,
        confusion=confusion,
    )
    return updates, probe_transfers(asked, uploads, description.layout.bytes)
