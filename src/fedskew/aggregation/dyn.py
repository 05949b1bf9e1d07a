"""Each client's loss is bent so that all clients' optima come to agree (FedDyn).

Acar et al.: "Federated Learning Based on Dynamic Regularization", ICLR 2021, Algorithm 1. Client:
minimise f_i(w) - <h_i, w> + (alpha / 2) |w - W|^2, then h_i <- h_i - alpha (W_i - W). Server: h <-
h - (alpha / K) sum_S (W_i - W); W <- mean_S W_i - h / alpha. Uniform mean; K counts ALL clients.

With tiny alpha and few clients a round -h / alpha can blow up: gradients are clipped at length
``clip_norm`` (docs/methods.md 5). State is kept for clients that were ever chosen and would lie at
the clients on a fleet: it does not travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedskew.aggregation.mean import average, normalised
from fedskew.errors import RecipeError
from fedskew.types import AggregationRule, Ends, LocalJob, Memory, Params


@dataclass(frozen=True)
class FedDyn(AggregationRule):
    """Mean model shifted by the server's share of all drifts."""

    alpha: float = 0.01
    clip_norm: float = 10.0

    corrects = True

    def merge(self, memory: Memory, model: Params, ends: Ends) -> tuple[Params, Memory]:
        """The uniform mean minus h / alpha; h and every h_i move with the drifts."""
        n = ends.layout.num_weights
        moved = average(ends, normalised(ends, "uniform"))
        clients = dict(memory.get("own", {}))
        shared = memory.get("shared", np.zeros(n, np.float32)).copy()
        for client, row in zip(ends.clients, ends.params, strict=True):
            drift = row[:n] - model[:n]
            drift *= np.float32(self.alpha)
            clients[str(client)] = clients.get(str(client), np.float32(0.0)) - drift
            drift /= np.float32(ends.num_clients)
            shared -= drift
        moved[:n] -= shared / np.float32(self.alpha)
        return moved, {"own": clients, "shared": shared}

    def corrections(self, memory: Memory, clients: Sequence[int], num_weights: int) -> Params:
        """-h_i, the gradient of the linear term."""
        kept = memory.get("own", {})
        pull = np.zeros((len(clients), num_weights), np.float32)
        for row, client in zip(pull, clients, strict=True):
            if str(client) in kept:
                np.negative(kept[str(client)], out=row)
        return pull

    def job(self, job: LocalJob) -> LocalJob:
        """The job with FedDyn's quadratic term and clipping."""
        if self.alpha <= 0:
            what = f"{self.alpha} is not positive"
            raise RecipeError("aggregation.alpha", what, "Example: alpha = 0.01")
        if job.prox_mu:
            what = "FedDyn brings its own quadratic term"
            raise RecipeError("local.prox_mu", what, "Set local.prox_mu = 0")
        return replace(job, prox_mu=self.alpha, clip_norm=self.clip_norm)
