"""The bare loop everything is measured against: what one writes in plain PyTorch, one thread,
data normalised in advance.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 200),
        nn.ReLU(),
        nn.Linear(200, 200),
        nn.ReLU(),
        nn.Linear(200, 10),
    )


def cnn() -> nn.Module:
    """Paper 002's network (21,840 parameters) as usually written: convolution, ReLU, pool.

    Channels come first.
    """
    return nn.Sequential(
        *(nn.Conv2d(1, 10, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(10, 20, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10)),
    )


def train_client(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, batch: int, lr: float
) -> dict[str, torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    order = torch.randperm(len(y))
    for begin in range(0, len(y), batch):
        index = order[begin : begin + batch]
        optimizer.zero_grad()
        F.cross_entropy(model(x[index]), y[index]).backward()
        optimizer.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def play_round(
    model: nn.Module, shards: list[tuple[torch.Tensor, torch.Tensor]], batch: int, lr: float
) -> None:
    """Every client from the same model, then the average by examples."""
    start = {name: value.detach().clone() for name, value in model.state_dict().items()}
    total = sum(len(y) for _, y in shards)
    mean = {name: torch.zeros_like(value) for name, value in start.items()}
    for x, y in shards:
        model.load_state_dict(start)
        for name, value in train_client(model, x, y, batch, lr).items():
            mean[name] += value * (len(y) / total)
    model.load_state_dict(mean)


def normalised(x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    pixels = (torch.from_numpy(x[rows]).float() / 255 - 0.1307) / 0.3081
    return pixels.unsqueeze(1), torch.from_numpy(y[rows])
