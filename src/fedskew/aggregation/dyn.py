"""Each client's loss is bent so that all clients' optima come to agree (FedDyn).

Acar et al.: "Federated Learning Based on Dynamic Regularization", ICLR 2021, Algorithm 1. Client:
minimise f_i(w) - <h_i, w> + (alpha / 2) |w - W|^2, then h_i <- h_i - alpha (W_i - W). Server: h <-
h - (alpha / K) sum_S (W_i - W); W <- mean_S W_i - h / alpha. Uniform mean; K counts ALL clients.

With tiny alpha and few clients a round -h / alpha can blow up: gradients are clipped at length
``clip_norm`` (METHODS 5). State is kept for clients that were ever chosen and would lie at the
clients on a fleet: it does not travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedskew.aggregation.mean import average, normalised
from fedskew.errors import RecipeError
from fedskew.types import Ends, LocalJob, Memory, Params, Stateful


def step(
    memory: Memory, model: Params, ends: Ends, *, alpha: float = 0.01, clip_norm: float = 10.0
) -> tuple[Params, Memory]:
    """Mean model shifted by the server's share of all drifts."""
    n = ends.layout.num_weights
    moved = average(ends, normalised(ends, "uniform"))
    own = dict(memory.get("own", {}))
    shared = memory.get("shared", np.zeros(n, np.float32)).copy()
    for client, row in zip(ends.clients, ends.params, strict=True):
        drift = row[:n] - model[:n]
        drift *= np.float32(alpha)
        own[str(client)] = own.get(str(client), np.float32(0.0)) - drift
        drift /= np.float32(ends.num_clients)
        shared -= drift
    moved[:n] -= shared / np.float32(alpha)
    return moved, {"own": own, "shared": shared}


def corrections(
    memory: Memory,
    clients: Sequence[int],
    num_weights: int,
    *,
    alpha: float = 0.01,
    clip_norm: float = 10.0,
) -> Params:
    """-h_i, the gradient of the linear term."""
    own, pull = memory.get("own", {}), np.zeros((len(clients), num_weights), np.float32)
    for row, client in zip(pull, clients, strict=True):
        if str(client) in own:
            np.negative(own[str(client)], out=row)
    return pull


def with_penalty(job: LocalJob, *, alpha: float = 0.01, clip_norm: float = 10.0) -> LocalJob:
    """The job with FedDyn's quadratic term and clipping."""
    if alpha <= 0:
        raise RecipeError("aggregation.alpha", f"{alpha} is not positive", "Example: alpha = 0.01")
    if job.prox_mu:
        raise RecipeError(
            "local.prox_mu", "FedDyn brings its own quadratic term", "Set local.prox_mu = 0"
        )
    return replace(job, prox_mu=alpha, clip_norm=clip_norm)


dyn = Stateful(step, corrections=corrections, job=with_penalty)
