"""The job as Flower's documentation would write it: its own FedAvg, one epoch of SGD in PyTorch.

A round is from choosing clients to the end of aggregation; their seconds go to a file.
"""

import json
import time
from collections.abc import Iterable
from pathlib import Path

import job
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """One epoch."""
    torch.set_num_threads(1)
    pixels, labels = job.data(int(context.node_config["partition-id"]))
    x, y = torch.from_numpy(pixels).float() / 255, torch.from_numpy(labels)
    model = job.build()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=job.LR)
    order = torch.randperm(len(y))
    for begin in range(0, len(y), job.BATCH):
        rows = order[begin : begin + job.BATCH]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": len(y)})
    arrays = ArrayRecord(model.state_dict())
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


class Timed(FedAvg):
    """Flower's own FedAvg with a clock."""

    seconds: list[float]
    began = 0.0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.began = time.perf_counter()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        if any(reply.has_error() for reply in replies):
            raise RuntimeError(f"round {server_round}: a client failed")
        merged = super().aggregate_train(server_round, replies)
        self.seconds.append(time.perf_counter() - self.began)
        return merged


@server.main()
def main(grid: Grid, context: Context) -> None:
    """All nodes, every round, no tests."""
    config, nodes = context.run_config, int(context.run_config["nodes"])
    strategy = Timed(
        fraction_train=1.0, min_train_nodes=nodes, min_available_nodes=nodes,
        fraction_evaluate=0.0, min_evaluate_nodes=0,
    )  # fmt: skip
    strategy.seconds = []
    start = ArrayRecord(job.build().state_dict())
    strategy.start(grid, initial_arrays=start, num_rounds=int(config["rounds"]))
    Path(str(config["out"])).write_text(json.dumps(strategy.seconds))
