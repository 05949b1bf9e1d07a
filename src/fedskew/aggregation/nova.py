"""Clients that took more local steps no longer pull harder: updates are averaged per step, then
scaled (FedNova).

Wang, Liu, Liang, Joshi, Poor: "Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization", NeurIPS 2020, eqs 6-8. d_i = (W - W_i) / a_i; W <- W - (sum nu_i a_i) sum
nu_i d_i; a_i = steps for plain SGD, with momentum rho [tau - rho (1 - rho^tau) / (1 - rho)] / (1 -
rho), with a proximal term mu (1 - (1 - lr mu)^tau) / (lr mu).

Each client reports a_i with its model: 4 bytes more (METHODS 9.1).

Differs from FedLab's default, which multiplies by K / m although the weights already sum to one.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedskew.aggregation.mean import average, normalised
from fedskew.errors import RecipeError
from fedskew.types import Ends, Floats, Ints, LocalJob, Memory, Params, Stateful, needs


def nova(
    model: Params, ends: Ends, *, weights: Literal["examples", "uniform"] = "examples"
) -> Params:
    """Normalised averaging of trained weights; buffers and counters are averaged as in FedAvg."""
    shares, n = normalised(ends, weights), ends.layout.num_weights
    lengths = effective_steps(ends.steps, ends.job)
    moved = average(ends, shares)
    scale = float(shares @ lengths)
    pull = sum(
        (s / a) * (model[:n].astype(np.float64) - row[:n])
        for s, a, row in zip(shares, lengths, ends.params, strict=True)
    )
    moved[:n] = model[:n] - (scale * pull).astype(np.float32)
    return moved


def effective_steps(steps: Ints, job: LocalJob) -> Floats:
    """a_i: how far the accumulated weight of a client's gradients reaches.

    >>> effective_steps(np.array([4]), LocalJob()).tolist()
    [4.0]
    >>> effective_steps(np.array([2]), LocalJob(momentum=0.5)).tolist()
    [2.5]
    """
    normalisable(job)
    tau = steps.astype(np.float64)
    if job.momentum:
        rho = job.momentum
        return (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
    if job.prox_mu:
        shrink = job.lr * job.prox_mu
        return (1 - (1 - shrink) ** tau) / shrink
    return tau


def normalisable(
    job: LocalJob, *, weights: Literal["examples", "uniform"] = "examples"
) -> LocalJob:
    """The job, if it is known how far its steps reach."""
    if job.optimizer != "sgd" or (job.momentum and job.prox_mu):
        raise RecipeError(
            "aggregation.nova",
            "has no normaliser for these local steps",
            "Use sgd, with momentum or prox_mu",
        )
    return job


@needs("steps")
def step(
    memory: Memory,
    model: Params,
    ends: Ends,
    *,
    weights: Literal["examples", "uniform"] = "examples",
) -> tuple[Params, Memory]:
    """Normalised averaging of trained weights; buffers and counters are averaged as in FedAvg."""
    return nova(model, ends, weights=weights), memory


fednova = Stateful(step, job=normalisable)
