"""What AFLS chooses with these label counts, its omega, and what the clock says of one round.
Nothing is trained for that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedskew.accounting.devices import Devices, draw_population
from fedskew.evidence.cells import Cell
from fedskew.experiment.world import dataset_of, shards_of
from fedskew.loop.federation import run, settle
from fedskew.recipe import load, method_of, override, resolve
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import RoundRecord

SHARED = ("data", "partition", "devices", "model")


def choice(cell: Cell) -> dict[str, float]:
    """One procedure (the cell's recipe) on one federation: whether AFLS chooses it, omega, the
    seconds of a round.
    """
    shards = shards_of(cell.recipe, dataset_of(cell.recipe), cell.seed)
    afls = resolve({**load("afls"), **{name: cell.recipe[name] for name in SHARED}})
    *_, (state, record) = _play(afls, shards.label_counts, cell.seed)
    own = cell.recipe["procedure"]
    relay = "server" if own["use"] == "parallel" else str(own.get("relay", "server"))
    return {
        "omega": max(0.0, state.memory["procedure"]["omega"]),
        "chosen": int(_way(record) == (own["use"], relay)),
        "examples": int(shards.label_counts[0].sum()),
        "round_seconds": round_seconds(cell.recipe),
    }


def round_seconds(recipe: Any) -> float:
    """What the clock says of one round with equal devices."""
    devices = int(recipe["data"]["clients"])
    counts = np.full((devices, 10), 100)
    means = draw_population(counts.sum(axis=1), Devices(**recipe["devices"]), 0)
    one = resolve(override(recipe, {"run.rounds": 1, "run.clients_per_round": devices}))
    *_, (_, record) = _play(one, counts, 0, means)
    return float(record.cost.seconds)


def _play(recipe: Any, counts: Any, seed: int, means: Any = None) -> Any:
    one = resolve(override(recipe, {"run.rounds": 1, "run.clients_per_round": len(counts)}))
    return run(settle(method_of(one), ScriptedRuntime(counts, population=means), seed))


def _way(record: RoundRecord) -> tuple[str, str]:
    """The procedure of a round."""
    return ("sequential", "d2d") if len(record.chains) == 1 else ("parallel", "server")
