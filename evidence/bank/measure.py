"""One method on one federation of the bank: accuracy by rounds, and what a round costs.

Costs are kept without a unit, so that they can be read for a model, a link and a pace of any size:
models sent, sample passes, and the longest way through a round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from fedskew.accounting.links import RATE_BPS, SECONDS_PER_EXAMPLE
from fedskew.accounting.traffic import total_bytes
from fedskew.advice.bank import LEVELS
from fedskew.advice.features import Training, features_of
from fedskew.data import Dataset, load
from fedskew.evidence.cells import Cell
from fedskew.experiment.figures import last_mean
from fedskew.experiment.local import run_resolved
from fedskew.experiment.run import Run
from fedskew.experiment.world import shards_of
from fedskew.streams import stream
from fedskew.types import Ints, RoundRecord


@cache
def examples_of(name: str, folder: str, train: int, test: int) -> Dataset:
    """So many examples of a data set, always the same ones."""
    whole = load(name, folder=folder or None)
    rng = stream(0, "examples")
    rows = np.sort(rng.permutation(len(whole.y))[:train])
    tests = np.sort(rng.permutation(len(whole.y_test))[:test])
    return replace(
        whole,
        x=whole.x[rows],
        y=whole.y[rows],
        x_test=whole.x_test[tests],
        y_test=whole.y_test[tests],
        columns={key: values[rows] for key, values in whole.columns.items()},
    )


def _examples(cell: Cell) -> Dataset:
    data = cell.recipe["data"]
    sizes = (int(cell.options["train"]), int(cell.options["test"]))
    return examples_of(data["use"], data["folder"], *sizes)


def _seeds(cell: Cell) -> range:
    repeats = int(cell.options["repeats"])
    return range(cell.seed * repeats, (cell.seed + 1) * repeats)


def work(cell: Cell) -> float:
    """How long a cell takes, up to a factor."""
    run = cell.recipe["run"]
    return float(run["rounds"] * run["clients_per_round"] * cell.options["repeats"])


# ---------------------------------------------------------------- what a federation looks like


def facts(cell: Cell) -> dict[str, float]:
    """Its features, in the mean over repetitions."""
    recipe, dataset = cell.recipe, _examples(cell)
    local = recipe["local"]
    training = Training(
        recipe["run"]["clients_per_round"], local["epochs"], local["batch"], local["lr"]
    )
    found = [
        features_of(shards_of(recipe, dataset, seed).label_counts, training)
        for seed in _seeds(cell)
    ]
    return {name: _mean([one[name] for one in found]) for name in found[0]}


# ---------------------------------------------------------------- what a method gives there


def play(cell: Cell) -> dict[str, Any]:
    """Accuracy after so many rounds, and costs; the mean over repetitions."""
    dataset = _examples(cell)
    rows = [
        _row(run_resolved(cell.recipe, data=dataset, seed=seed, workers=1)) for seed in _seeds(cell)
    ]
    return {name: _mean([row[name] for row in rows]) for name in rows[0]}


def _mean(values: Sequence[Any]) -> Any:
    mean = np.round(np.mean(values, axis=0), 4)
    return mean.tolist() if mean.ndim else float(mean)


def _row(run: Run) -> dict[str, Any]:
    return {"accuracy": _by_rounds(run), **_costs(run)}


def _by_rounds(run: Run) -> list[float]:
    """What the final accuracy of a run would be that ends at each level."""
    curve = run.curve
    reached = [level for level in LEVELS if level <= run.recipe["run"]["rounds"]]
    known = [curve.rounds <= level for level in reached]
    return [last_mean(curve.rounds[upto], curve.accuracy[upto]) for upto in known]


def _costs(run: Run) -> dict[str, float]:
    """Per round and place (m of them), and before the first round per client."""
    before, rounds = run.rounds[:1], run.rounds[1:]
    sizes = run.labels.counts.sum(axis=1) if run.labels is not None else np.ones(run.num_clients)
    model, mean = 4 * run.models.shape[1], float(sizes.mean())
    places = len(rounds) * run.recipe["run"]["clients_per_round"]
    epochs = run.recipe["local"]["epochs"]
    hop = 8 * model / RATE_BPS
    ways = [_way(record, sizes, run.recipe) for record in rounds]
    served, handed, turns = (float(np.mean(column)) for column in zip(*ways, strict=True))
    # the clock also knows what was asked before anybody was chosen: models that are sent
    clock = float(np.mean([record.cost.seconds for record in rounds]))
    counted = (served + handed) * hop + turns * epochs * SECONDS_PER_EXAMPLE
    return {
        "down": _sent(rounds, "down") / model / places,
        "up": _sent(rounds, "up") / model / places,
        "d2d": _sent(rounds, "d2d") / model / places,
        "passes": _passes(rounds) / mean / epochs / places,
        "hops": served + max(0.0, clock - counted) / hop,
        "handed": handed,
        "turns": turns / mean,
        "chosen": float(np.mean([len(_clients(record)) for record in rounds])),
        "start_down": _sent(before, "down") / model / len(sizes),
        "start_up": _sent(before, "up") / model / len(sizes),
        "start_passes": _passes(before) / mean / len(sizes),
        "start_hops": before[0].cost.seconds / hop,
    }


def _way(record: RoundRecord, sizes: Ints, recipe: Mapping[str, Any]) -> tuple[float, float, float]:
    """The longest chain of a round: models to and from the server, models handed on from device to
    device, examples.
    """
    if not record.chains:
        return 0.0, 0.0, 0.0
    longest = max(record.chains, key=lambda chain: sizes[list(chain.clients)].sum())
    length = len(longest.clients)
    examples = float(sizes[list(longest.clients)].sum())
    if recipe["procedure"].get("relay") == "d2d":
        return 2.0, length - 1.0, examples
    return 2.0 * length, 0.0, examples


def _clients(record: RoundRecord) -> list[int]:
    return [client for chain in record.chains for client in chain.clients]


def _sent(records: Sequence[RoundRecord], way: str) -> int:
    return sum(total_bytes(record.transfers, way) for record in records)


def _passes(records: Sequence[RoundRecord]) -> float:
    found = sum(record.cost.sample_passes for record in records)
    return 0.0 if math.isnan(found) else found
