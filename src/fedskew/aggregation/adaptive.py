"""The server takes adaptive steps along the mean update: FedAdagrad, FedAdam, FedYogi.

Reddi et al.: "Adaptive Federated Optimization", ICLR 2021, Algorithm 2. D = mean update; m <- beta1
m + (1 - beta1) D; V by the rule; W <- W + server_lr m / (sqrt(V) + tau). Adagrad: V + D^2 with
beta1 = 0; Adam: beta2 V + (1 - beta2) D^2; Yogi: V - (1 - beta2) D^2 sign(V - D^2).

Differs from Flower's strategies: V starts at tau^2 as in the paper (``v0 = "zero"`` as Flower
does), and there is no bias correction unless asked for (Flower corrects FedAdam with the exponent
of the NEXT round and leaves tau uncorrected; here it is Adam's own, with the number of steps
taken). tests/parity/test_server_optimisers.py has both, number for number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedskew.aggregation.mean import mean
from fedskew.types import AggregationRule, Ends, Floats, Memory, Params


@dataclass(frozen=True)
class AdaptiveServer(AggregationRule):
    """One adaptive server step on trained weights; buffers and counters are averaged.

    Adagrad ignores the betas.
    """

    rule: Literal["adagrad", "adam", "yogi"] = "adam"
    server_lr: float = 0.01
    tau: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.99
    v0: Literal["tau2", "zero"] = "tau2"
    bias_correction: bool = False
    weights: Literal["examples", "uniform"] = "examples"

    def merge(self, memory: Memory, model: Params, ends: Ends) -> tuple[Params, Memory]:
        """Moments of the mean update, then a step along the first, scaled by the second."""
        n = ends.layout.num_weights
        moved = mean(model, ends, weights=self.weights)
        update = (moved[:n] - model[:n]).astype(np.float64)
        start = self.tau**2 if self.v0 == "tau2" else 0.0
        first = memory.get("first", np.zeros(n))
        second = memory.get("second", np.full(n, start))
        taken = int(memory.get("taken", 0)) + 1
        first, second = self._moments(first, second, update)
        step = self._step(first, second, taken)
        moved[:n] = model[:n] + step.astype(np.float32)
        return moved, {"first": first, "second": second, "taken": taken}

    def _moments(self, first: Floats, second: Floats, update: Floats) -> tuple[Floats, Floats]:
        square = np.square(update)
        if self.rule == "adagrad":
            return update, second + square
        first = self.beta1 * first + (1 - self.beta1) * update
        if self.rule == "adam":
            return first, self.beta2 * second + (1 - self.beta2) * square
        return first, second - (1 - self.beta2) * square * np.sign(second - square)

    def _step(self, first: Floats, second: Floats, taken: int) -> Floats:
        if self.bias_correction and self.rule != "adagrad":
            first = first / (1 - self.beta1**taken)
            second = second / (1 - self.beta2**taken)
        return np.asarray(self.server_lr * first / (np.sqrt(second) + self.tau), np.float64)
