"""The server keeps moving in the direction of past rounds (FedAvgM).

Hsu, Qi, Brown: "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019, section 3.3. v <- beta v + (W - mean W_i), starting at the first
pseudo-gradient; W <- W - server_lr v. Paper 004: beta = 0.7.
"""

from __future__ import annotations

from typing import Literal

from fedskew.aggregation.mean import mean
from fedskew.types import Ends, Memory, Params, Stateful


def step(
    memory: Memory,
    model: Params,
    ends: Ends,
    *,
    beta: float = 0.7,
    server_lr: float = 1.0,
    weights: Literal["examples", "uniform"] = "examples",
) -> tuple[Params, Memory]:
    """Server momentum on trained weights; buffers and counters are averaged as in FedAvg."""
    moved, n = mean(model, ends, weights=weights), ends.layout.num_weights
    gradient = model[:n] - moved[:n]
    velocity = beta * memory["velocity"] + gradient if "velocity" in memory else gradient
    moved[:n] = model[:n] - server_lr * velocity
    return moved, {"velocity": velocity}


momentum = Stateful(step)
