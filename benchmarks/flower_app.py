"""Twenty rounds of FedAvg on Flower's simulation engine, run by benchmarks/flower.py.

``flower_app.py CLIENTS EXAMPLES``

Flower gets the settings that make it fastest on a small machine: one core per client process so
that all cores work, one torch thread each, data and model made once per process, no evaluation, no
metrics besides the number of examples, the dashboard off. ``run_simulation`` is deprecated but
starts quicker than ``flwr run``, which first brings up a server of its own; the engine and the grid
behind the two are the same. The last line is ``RESULT {"steady": seconds}``; a round without ten
good replies is an error, because failed clients would look like fast ones.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterable
from functools import cache

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

import bare

IMAGES, M, ROUNDS, WARM_UP, BATCH, LR = 60_000, 10, 20, 2, 64, 0.005
ENGINE = {
    "init_args": {"address": "local", "include_dashboard": False, "log_to_driver": False},
    "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
}

client_app = ClientApp()


@cache
def resident(clients: int, examples: int) -> tuple[nn.Module, np.ndarray, np.ndarray, np.ndarray]:
    """Model, pixels, labels and who owns which rows: once per client process, as from its disk."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (IMAGES, 28, 28), dtype=np.uint8), rng.integers(0, 10, IMAGES)
    return bare.mlp(), x, y, rng.integers(0, IMAGES, (clients, examples))


@client_app.train()
def train(message: Message, context: Context) -> Message:
    examples = int(message.content["config"]["examples"])
    model, x, y, order = resident(int(context.node_config["num-partitions"]), examples)
    rows = order[int(context.node_config["partition-id"])]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    trained = bare.train_client(model, *bare.normalised(x, y, rows), BATCH, LR)
    metrics = MetricRecord({"num-examples": len(rows)})
    return Message(
        RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics}), reply_to=message
    )


class TimedFedAvg(FedAvg):
    """Flower's own FedAvg with a clock: a round is from choosing clients to aggregation's end."""

    def __init__(self, clients: int) -> None:
        super().__init__(
            fraction_train=M / clients, min_train_nodes=M, min_available_nodes=clients,
            fraction_evaluate=0.0, min_evaluate_nodes=0,
        )  # fmt: skip
        self.seconds: list[float] = []
        self._began = 0.0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._began = time.perf_counter()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        good = sum(not reply.has_error() for reply in replies)
        if good != M:
            raise RuntimeError(f"round {server_round}: {good} of {M} clients replied")
        merged = super().aggregate_train(server_round, replies)
        self.seconds.append(time.perf_counter() - self._began)
        return merged


def main(clients: int, examples: int) -> None:
    torch.set_num_threads(1)
    strategy, server_app = TimedFedAvg(clients), ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        start, config = ArrayRecord(bare.mlp().state_dict()), ConfigRecord({"examples": examples})
        strategy.start(grid, initial_arrays=start, num_rounds=ROUNDS, train_config=config)

    run_simulation(server_app, client_app, num_supernodes=clients, backend_config=ENGINE)
    if len(strategy.seconds) != ROUNDS:
        sys.exit(f"Flower played {len(strategy.seconds)} of {ROUNDS} rounds")
    print("ROUNDS", " ".join(f"{seconds:.3f}" for seconds in strategy.seconds))
    print(
        "RESULT", json.dumps({"steady": statistics.median(strategy.seconds[WARM_UP:])}), flush=True
    )


if __name__ == "__main__":
    # As an importable module and not as __main__: Ray would otherwise send these functions by
    # value, and every message would bring an empty cache of its own.
    import flower_app

    flower_app.main(int(sys.argv[1]), int(sys.argv[2]))
