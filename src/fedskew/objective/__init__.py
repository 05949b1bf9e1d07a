"""What loss a client minimises: ``objective(counts, *, options) -> LocalLoss``.

``counts`` (C,) are the client's own label counts, which never leave it: the name and the options
travel in the job, and whoever trains the client calls the function with the client's own labels.
The answer says how logits change before the cross-entropy, what is distilled from the model the
client received, and which logits are pressed down (:mod:`fedskew.objective.loss`).

An objective that ``@needs("signal")`` is ``objective(counts, shares, *, options)``: the loop tells
it the federation's label shares (C,) as the signal has them, and they are charged.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedskew.errors import RunError
from fedskew.foreign import ForeignName
from fedskew.objective.cross_entropy import cross_entropy
from fedskew.objective.fedlc import fedlc
from fedskew.objective.fedntd import fedntd
from fedskew.objective.fedrs import fedrs
from fedskew.objective.fedvls import fedvls
from fedskew.objective.logit_adjusted import logit_adjusted
from fedskew.objective.loss import Distillation, LocalLoss, Suppression
from fedskew.types import Ints, LocalJob, needs_of

__all__ = [
    "OBJECTIVES",
    "Distillation",
    "LocalLoss",
    "Suppression",
    "loss_for",
    "needs_shares",
    "plain",
    "teaches",
]

OBJECTIVES: dict[str, Callable[..., LocalLoss]] = {
    "cross_entropy": cross_entropy,
    "logit_adjusted": logit_adjusted,
    "fedlc": fedlc,
    "fedrs": fedrs,
    "fedntd": fedntd,
    "fedvls": fedvls,
}


def loss_for(job: LocalJob, counts: Ints) -> LocalLoss:
    """What a client with these label counts minimises under a job.

    >>> loss_for(LocalJob(), np.array([3, 1])).is_plain
    True
    """
    options: Mapping[str, Any] = dict(job.objective_options)
    if not needs_shares(job):
        return _function(job.objective)(counts, **options)
    shares = np.array(job.label_shares) if job.label_shares else None
    return _function(job.objective)(counts, shares, **options)


def needs_shares(job: LocalJob) -> bool:
    """Whether a job's objective is to be told the federation's label shares."""
    return "signal" in needs_of(_function(job.objective), dict(job.objective_options))


def teaches(job: LocalJob) -> bool:
    """Whether clients that lack classes learn from the model they receive: a forward pass more.

    >>> teaches(LocalJob()), teaches(LocalJob(objective="fedntd"))
    (False, True)
    """
    even = (1 / 3,) * 3 if needs_shares(job) else ()
    return loss_for(replace(job, label_shares=even), np.array([1, 0, 0])).distillation is not None


def plain(job: LocalJob) -> LocalJob:
    """The same job under plain cross-entropy."""
    return replace(job, objective="cross_entropy", objective_options=(), label_shares=())


def _function(name: str) -> Callable[..., LocalLoss]:
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    if isinstance(name, ForeignName):
        raise RunError("objective", f"'{name}' is code that a message names", "It is not imported")
    module, _, function = name.partition(":")
    found: Callable[..., LocalLoss] = getattr(importlib.import_module(module), function)
    return found
