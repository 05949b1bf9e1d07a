"""The server keeps moving in the direction of past rounds (FedAvgM).

Hsu, Qi, Brown: "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019, section 3.3. v <- beta v + (W - mean W_i), starting at the first
pseudo-gradient; W <- W - server_lr v. Paper 004: beta = 0.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedskew.aggregation.mean import mean
from fedskew.types import AggregationRule, Ends, Memory, Params


@dataclass(frozen=True)
class ServerMomentum(AggregationRule):
    """Server momentum on trained weights; buffers and counters are averaged as in FedAvg."""

    beta: float = 0.7
    server_lr: float = 1.0
    weights: Literal["examples", "uniform"] = "examples"

    def merge(self, memory: Memory, model: Params, ends: Ends) -> tuple[Params, Memory]:
        """One step against the velocity."""
        n = ends.layout.num_weights
        moved = mean(model, ends, weights=self.weights)
        gradient = model[:n] - moved[:n]
        velocity = gradient
        if "velocity" in memory:
            velocity = self.beta * memory["velocity"] + gradient
        moved[:n] = model[:n] - self.server_lr * velocity
        return moved, {"velocity": velocity}
