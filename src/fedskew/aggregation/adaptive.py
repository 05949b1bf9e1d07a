"""The server treats the mean update as a gradient and takes an adaptive step: FedAdagrad, FedAdam,
FedYogi.

Reddi et al.: "Adaptive Federated Optimization", ICLR 2021, Algorithm 2. D = mean update; m <- beta1
m + (1 - beta1) D; V by the rule; W <- W + server_lr m / (sqrt(V) + tau). Adagrad: V + D^2 with
beta1 = 0; Adam: beta2 V + (1 - beta2) D^2; Yogi: V - (1 - beta2) D^2 sign(V - D^2).

Differs from Flower's strategies: V starts at tau^2 as in the paper (``v0 = "zero"`` as Flower
does), and there is no bias correction unless asked for (Flower corrects FedAdam with the exponent
of the NEXT round and leaves tau uncorrected; here it is Adam's own, with the number of steps
taken). tests/parity/test_server_optimisers.py has both, number for number.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedskew.aggregation.mean import mean
from fedskew.types import Ends, Memory, Params, Stateful


def step(
    memory: Memory,
    model: Params,
    ends: Ends,
    *,
    rule: Literal["adagrad", "adam", "yogi"] = "adam",
    server_lr: float = 0.01,
    tau: float = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.99,
    v0: Literal["tau2", "zero"] = "tau2",
    bias_correction: bool = False,
    weights: Literal["examples", "uniform"] = "examples",
) -> tuple[Params, Memory]:
    """One adaptive server step on trained weights; buffers and counters are averaged. Adagrad
    ignores the betas.
    """
    moved, n = mean(model, ends, weights=weights), ends.layout.num_weights
    update = (moved[:n] - model[:n]).astype(np.float64)
    first = memory.get("first", np.zeros(n))
    second = memory.get("second", np.full(n, tau**2 if v0 == "tau2" else 0.0))
    taken = int(memory.get("taken", 0)) + 1
    square = np.square(update)
    if rule == "adagrad":
        first, second = update, second + square
    else:
        first = beta1 * first + (1 - beta1) * update
        grown = beta2 * second + (1 - beta2) * square
        second = (
            grown if rule == "adam" else second - (1 - beta2) * square * np.sign(second - square)
        )
    ahead, spread = first, second
    if bias_correction and rule != "adagrad":
        ahead, spread = first / (1 - beta1**taken), second / (1 - beta2**taken)
    moved[:n] = model[:n] + (server_lr * ahead / (np.sqrt(spread) + tau)).astype(np.float32)
    return moved, {"first": first, "second": second, "taken": taken}


adaptive = Stateful(step)
