"""How often a client is chosen when it is honest, and how often when it lies.

The same federation is played once with honest clients, then again and again with one liar, another
one each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedskew.evidence.cells import Cell
from fedskew.experiment.world import (
    dataset_of,
    factory_of,
    population_of,
    shards_of,
    store_of,
)
from fedskew.loop.federation import run, settle
from fedskew.recipe import method_of
from fedskew.runtime.hostile import Hostile, HostileRuntime
from fedskew.runtime.local.runtime import LocalRuntime
from fedskew.types import Floats, Ints, Runtime

FULL_TRUST = 0.999


@contextmanager
def world(cell: Cell) -> Iterator[LocalRuntime]:
    """The recipe's clients, all honest, in this process."""
    recipe, seed = cell.recipe, cell.seed
    dataset = dataset_of(recipe)
    shards = shards_of(recipe, dataset, seed)
    means = population_of(recipe, shards.train.sizes, seed)
    factory = factory_of(recipe, dataset)
    with (
        threadpool_limits(1),
        LocalRuntime(store_of(shards), factory, workers=1, population=means) as runtime,
    ):
        yield runtime


def played(cell: Cell, runtime: Runtime) -> tuple[Ints, Floats, float]:
    """(K,) times chosen, (K,) trust at the end, final accuracy."""
    rounds = list(run(settle(method_of(cell.recipe), runtime, cell.seed)))
    state = rounds[-1][0]
    book = state.memory.get("trust")
    trust = np.ones(len(state.loss)) if book is None else book["trust"]
    return state.times_selected, trust, float(np.mean([r.accuracy for _, r in rounds[-5:]]))


def lies(cell: Cell) -> dict[str, Any]:
    """Times chosen, honest against lying, of every ``measure.every``-th client."""
    options = cell.options
    with world(cell) as runtime:
        times, trust, accuracy = played(cell, runtime)
        liars = list(range(0, len(times), int(options["every"])))
        lying, attacked = [], []
        for liar in liars:
            how = {"loss": options["loss"]} if "loss" in options else {}
            hostile = Hostile(clients=(liar,), kind=options["kind"], mix=options["mix"], **how)
            found = played(cell, HostileRuntime(runtime, hostile, cell.seed))
            lying.append(int(found[0][liar]))
            attacked.append(found[2])
    honest = times[liars]
    return {
        "honest": honest.tolist(),
        "lying": lying,
        "mean": float(times.mean()),
        "honest_mean": float(honest.mean()),
        "lying_mean": float(np.mean(lying)),
        "lying_most": max(lying),
        "honest_most": int(times.max()),
        "gain": float(np.sum(lying) / max(1, honest.sum())),
        "over_mean": float(max(lying) / times.mean()),
        "worst_excess": float(np.max(np.array(lying) - 1.5 * honest)),
        "gaining": float(np.mean(np.array(lying) > np.maximum(1.5 * honest, honest + 2))),
        "doubted": int((trust < FULL_TRUST).sum()),
        "accuracy": accuracy,
        "attacked": float(np.mean(attacked)),
    }
