"""Each client corrects its steps by how its gradients usually differ from others' (SCAFFOLD).

Karimireddy et al.: "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020,
Algorithm 1, option II. Client: g <- g - c_i + c at every step; c_i+ = c_i - c + (W - W_i) / (steps
lr). Server: W <- W + server_lr mean(W_i - W), c <- c + (|S| / K) mean(c_i+ - c_i).

Plain SGD only: with momentum, Adam or a proximal term (W - W_i) / (steps lr) is no mean gradient,
so that is refused. State is kept for clients that were ever chosen: one vector of the model's size
each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedskew.aggregation.mean import average, normalised
from fedskew.errors import RecipeError
from fedskew.types import AggregationRule, Ends, LocalJob, Memory, Params


@dataclass(frozen=True)
class Scaffold(AggregationRule):
    """Uniform mean of the updates, and new control variates for everyone who trained."""

    server_lr: float = 1.0

    corrects = True
    extra_models = 1  # c goes down with the model, the change of c_i comes up with it

    def merge(self, memory: Memory, model: Params, ends: Ends) -> tuple[Params, Memory]:
        """One server step; c moves by the mean change over ALL clients of the slot."""
        n = ends.layout.num_weights
        moved = average(ends, normalised(ends, "uniform"))
        moved[:n] = model[:n] + np.float32(self.server_lr) * (moved[:n] - model[:n])
        common = memory.get("common", np.zeros(n, np.float32))
        clients = dict(memory.get("own", {}))
        change = np.zeros(n, np.float32)
        for client, row, steps in zip(ends.clients, ends.params, ends.steps, strict=True):
            before = clients.get(str(client), np.float32(0.0))
            after = before - common + (model[:n] - row[:n]) / np.float32(int(steps) * ends.job.lr)
            clients[str(client)] = after
            change += after - before
        return moved, {"common": common + change / np.float32(ends.num_clients), "own": clients}

    def corrections(self, memory: Memory, clients: Sequence[int], num_weights: int) -> Params:
        """c - c_i for each client; zero before anybody has trained."""
        common = memory.get("common", np.zeros(num_weights, np.float32))
        kept = memory.get("own", {})
        return np.stack([common - kept.get(str(client), np.float32(0.0)) for client in clients])

    def job(self, job: LocalJob) -> LocalJob:
        """The job, if control variates have a meaning for it."""
        others = job.momentum or job.prox_mu or job.weight_decay or job.clip_norm
        if job.optimizer != "sgd" or others:
            what = (
                "needs plain SGD: under adam, momentum, decay, clipping or a proximal term "
                "its variates are no gradients"
            )
            remedy = "Set local.optimizer = 'sgd' and the others to 0"
            raise RecipeError("aggregation.scaffold", what, remedy)
        return job
