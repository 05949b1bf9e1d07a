"""What loss a client minimises: ``objective(counts, *, options) -> LogitChange``.

``counts`` (C,) are the client's own label counts, which never leave it: the name and the options
travel in the job, and whoever trains the client calls the function with the client's own labels.
The loss is the cross-entropy of the changed logits, so the fast paths compute it themselves.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from fedskew.objective.cross_entropy import cross_entropy
from fedskew.objective.fedrs import fedrs
from fedskew.objective.logit_adjusted import logit_adjusted
from fedskew.objective.logits import LogitChange
from fedskew.types import Ints, LocalJob

__all__ = ["OBJECTIVES", "LogitChange", "change_for"]

OBJECTIVES: dict[str, Callable[..., LogitChange]] = {
    "cross_entropy": cross_entropy,
    "logit_adjusted": logit_adjusted,
    "fedrs": fedrs,
}


def change_for(job: LocalJob, counts: Ints) -> LogitChange:
    """How a client with these label counts changes its logits under a job.

    >>> import numpy as np
    >>> change_for(LocalJob(), np.array([3, 1])).is_none
    True
    """
    options: Mapping[str, Any] = dict(job.objective_options)
    return _function(job.objective)(counts, **options)


def _function(name: str) -> Callable[..., LogitChange]:
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    module, _, function = name.partition(":")
    found: Callable[..., LogitChange] = getattr(importlib.import_module(module), function)
    return found
