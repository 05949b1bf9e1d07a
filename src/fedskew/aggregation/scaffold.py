"""Each client corrects its steps by how its own gradients usually differ from everybody's
(SCAFFOLD).

Karimireddy et al.: "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020,
Algorithm 1, option II. Client: g <- g - c_i + c at every step; c_i+ = c_i - c + (W - W_i) / (steps
lr). Server: W <- W + server_lr mean(W_i - W), c <- c + (|S| / K) mean(c_i+ - c_i).

Plain SGD only: with momentum, Adam or a proximal term (W - W_i) / (steps lr) is no mean gradient,
so that is refused. State is kept for clients that were ever chosen: one vector of the model's size
each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedskew.aggregation.mean import average, normalised
from fedskew.errors import RecipeError
from fedskew.types import Ends, LocalJob, Memory, Params, Stateful


def step(
    memory: Memory, model: Params, ends: Ends, *, server_lr: float = 1.0
) -> tuple[Params, Memory]:
    """Uniform mean of the updates, and new control variates for everyone who trained."""
    n = ends.layout.num_weights
    moved = average(ends, normalised(ends, "uniform"))
    moved[:n] = model[:n] + np.float32(server_lr) * (moved[:n] - model[:n])
    common = memory.get("common", np.zeros(n, np.float32))
    own = dict(memory.get("own", {}))
    change = np.zeros(n, np.float32)
    for client, row, steps in zip(ends.clients, ends.params, ends.steps, strict=True):
        before = own.get(str(client), np.float32(0.0))
        after = before - common + (model[:n] - row[:n]) / np.float32(int(steps) * ends.job.lr)
        own[str(client)] = after
        change += after - before
    return moved, {"common": common + change / np.float32(ends.num_clients), "own": own}


def corrections(
    memory: Memory, clients: Sequence[int], num_weights: int, *, server_lr: float = 1.0
) -> Params:
    """c - c_i for each client; zero before anybody has trained."""
    common = memory.get("common", np.zeros(num_weights, np.float32))
    own = memory.get("own", {})
    return np.stack([common - own.get(str(client), np.float32(0.0)) for client in clients])


def plain_sgd(job: LocalJob, *, server_lr: float = 1.0) -> LocalJob:
    """The job, if control variates have a meaning for it."""
    if job.optimizer != "sgd" or job.momentum or job.prox_mu or job.weight_decay or job.clip_norm:
        what = (
            "needs plain SGD: under adam, momentum, decay, clipping or a proximal term "
            "its variates are no gradients"
        )
        raise RecipeError(
            "aggregation.scaffold", what, "Set local.optimizer = 'sgd' and the others to 0"
        )
    return job


scaffold = Stateful(step, corrections=corrections, job=plain_sgd, extra_models=1)
