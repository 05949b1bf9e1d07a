"""An app as people have it, in the shape of Flower's PyTorch quick-start: a network, a ClientApp
with ``train`` and ``evaluate``, a ServerApp whose ``main`` has one line for the strategy. Nothing
in it knows fedskew. Small data that needs no download: digits, two labels for most clients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Result
from sklearn.datasets import load_digits
from torch import nn

CLIENTS = 8
torch.set_num_threads(1)


class Net(nn.Module):
    """Convolution, batch norm, two dense layers: every kind of array there is."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def first_model() -> Net:
    torch.manual_seed(0)
    return Net()


@cache
def digits() -> tuple[Any, Any]:
    return load_digits(return_X_y=True)


def load_part(part: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Client p holds digits p and p + 1, and a few of all."""
    x, y = digits()
    rng = np.random.default_rng(part)
    mine = np.flatnonzero((y == part) | (y == part + 1))[part % 3 :: 2]
    rows = np.concatenate([mine, rng.choice(len(y), 5 + part, replace=False)])
    images = torch.tensor(x[rows] / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return images, torch.tensor(y[rows])


def training_part(part: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = load_part(part)
    cut = int(0.8 * len(y))
    return x[:cut], y[:cut]


def fit(net: Net, x: torch.Tensor, y: torch.Tensor, lr: float, momentum: float = 0.9) -> float:
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=momentum)
    net.train()
    total = 0.0
    for begin in range(0, len(y), 16):
        optimizer.zero_grad()
        batch = slice(begin, begin + 16)
        loss = nn.functional.cross_entropy(net(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y[batch])
    return total / len(y)


def measure(net: Net, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    net.eval()
    with torch.no_grad():
        out = net(x)
    accuracy = (out.argmax(1) == y).float().mean().item()
    return nn.functional.cross_entropy(out, y).item(), accuracy


def make_client_app(
    mods: list[Any] | None = None, train_mods: list[Any] | None = None
) -> ClientApp:
    app = ClientApp(mods=mods)

    @app.train(mods=train_mods)
    def train(message: Message, context: Context) -> Message:
        net = Net()
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = training_part(int(context.node_config["partition-id"]))
        loss = fit(net, x, y, float(message.content["config"]["lr"]))
        metrics = MetricRecord({"train_loss": loss, "num-examples": len(y)})
        content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        net = Net()
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = load_part(int(context.node_config["partition-id"]))
        cut = int(0.8 * len(y))
        loss, accuracy = measure(net, x[cut:], y[cut:])
        found = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(y) - cut}
        return Message(content=RecordDict({"metrics": MetricRecord(found)}), reply_to=message)

    return app


def central(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    x, y = digits()
    images = torch.tensor(x[::7] / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    loss, accuracy = measure(net, images, torch.tensor(y[::7]))
    return MetricRecord({"accuracy": accuracy, "loss": loss})


def main(grid: Grid, strategy: Any, rounds: int = 3, lr: float = 0.05) -> Result:
    """What an app's ``@app.main()`` does."""
    arrays = ArrayRecord(first_model().state_dict())
    result = strategy.start(
        grid=grid,
        initial_arrays=arrays,
        train_config=ConfigRecord({"lr": lr}),
        num_rounds=rounds,
        evaluate_fn=central,
    )
    first_model().load_state_dict(result.arrays.to_torch_state_dict())  # as an app saves it
    return result


def make_server_app(make_strategy: Callable[[], Any], done: Callable[[Result], None]) -> ServerApp:
    app = ServerApp()

    @app.main()
    def start(grid: Grid, context: Context) -> None:
        done(main(grid, make_strategy(), rounds=2))

    return app
