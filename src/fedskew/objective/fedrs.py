"""Logits of classes a client lacks are scaled down, so that it does not push them away (FedRS).

Li, Zhan: "FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data",
KDD 2021: the logit of a class without examples is multiplied by alpha (restricted softmax); alpha =
1 is plain cross-entropy.
"""

from __future__ import annotations

import numpy as np

from fedskew.errors import RecipeError
from fedskew.objective.loss import LocalLoss
from fedskew.types import Ints


def fedrs(counts: Ints, *, alpha: float = 0.5) -> LocalLoss:
    """Restricted softmax.

    >>> fedrs(np.array([3, 0, 1])).scale.tolist()
    [1.0, 0.5, 1.0]
    """
    if not 0 <= alpha <= 1:
        raise RecipeError("objective.alpha", f"{alpha} is not a share", "Give a number from 0 to 1")
    return LocalLoss(scale=np.where(counts > 0, 1.0, alpha))
