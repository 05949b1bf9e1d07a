"""Updates are averaged per local step, so that more steps do not pull harder (FedNova).

Wang, Liu, Liang, Joshi, Poor: "Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization", NeurIPS 2020, eqs 6-8. d_i = (W - W_i) / a_i; W <- W - (sum nu_i a_i) sum
nu_i d_i; a_i = steps for plain SGD, with momentum rho [tau - rho (1 - rho^tau) / (1 - rho)] / (1 -
rho), with a proximal term mu (1 - (1 - lr mu)^tau) / (lr mu).

Along a chain every client begins with a fresh optimiser and its own received model, so a chain
reaches as far as its clients' a_i added up.

Each client reports a_i with its model: 4 bytes more (docs/methods.md 9.1).

Differs from FedLab's default, which multiplies by K / m although the weights already sum to one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedskew.aggregation.mean import average, normalised
from fedskew.errors import RecipeError
from fedskew.types import AggregationRule, Ends, Floats, Ints, LocalJob, Memory, Params


@dataclass(frozen=True)
class FedNova(AggregationRule):
    """Normalised averaging of trained weights; buffers and counters are averaged as in FedAvg."""

    weights: Literal["examples", "uniform"] = "examples"

    def needs(self) -> Collection[str]:
        """Every client reports how far its steps reach."""
        return ("steps",)

    def merge(self, memory: Memory, model: Params, ends: Ends) -> tuple[Params, Memory]:
        """Updates per step, averaged, times the mean number of steps."""
        n = ends.layout.num_weights
        shares = normalised(ends, self.weights)
        lengths = np.array([effective_steps(turn, ends.job).sum() for turn in _turns(ends)])
        moved = average(ends, shares)
        start = model[:n].astype(np.float64)
        pull = np.zeros(n)
        for share, length, row in zip(shares, lengths, ends.params, strict=True):
            pull = pull + (share / length) * (start - row[:n])
        moved[:n] = model[:n] - (float(shares @ lengths) * pull).astype(np.float32)
        return moved, memory

    def job(self, job: LocalJob) -> LocalJob:
        """The job, if it is known how far its steps reach."""
        return normalisable(job)


def _turns(ends: Ends) -> list[Ints]:
    return [np.array(turn, np.int64) for turn in ends.turns]


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


def normalisable(job: LocalJob) -> LocalJob:
    """The job, if it is known how far its steps reach."""
    if job.optimizer != "sgd" or (job.momentum and job.prox_mu):
        what = "has no normaliser for these local steps"
        raise RecipeError("aggregation.nova", what, "Use sgd, with momentum or prox_mu")
    return job
