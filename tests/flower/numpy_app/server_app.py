"""Two rounds of FedLECC; what came of them goes into a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

import fedskew

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = fedskew.flower.Strategy("fedlecc", settings={"run.clients_per_round": 2})
    first = {"w": np.zeros((4, 4), "f4"), "b": np.zeros(4, "f4")}
    arrays = ArrayRecord({name: Array(value) for name, value in first.items()})
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=2)
    found = {
        "accuracy": {r: m["eval_acc"] for r, m in result.evaluate_metrics_clientapp.items()},
        "chains": [[chain.clients for chain in r.chains] for r in strategy.run.rounds[1:]],
        "examples": strategy.run.clients["examples"][:2],
        "messages": strategy.tally.messages_up,
    }
    out = Path(str(context.run_config["out"]))
    out.with_suffix(".part").write_text(json.dumps(found))
    out.with_suffix(".part").rename(out)
