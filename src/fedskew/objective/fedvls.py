"""The received model teaches the classes a client lacks; frequent classes are pressed down where
they are wrong (FedVLS).

Guo, Ding, Liang, He, Wang, Tan: "Exploring Vacant Classes in Label-Skewed Federated Learning", AAAI
2025. Three terms, p the client's label shares, V the classes it lacks:

    CE(z + log(p + 1e-9), y)                                               calibrated
    + distillation KL(softmax over V of received || softmax over V of z)   vacant-class distillation
    + suppression sum_c p_c log(mean_i exp(z_ic + log((1/C) / p_c)))       logit suppression

Logit suppression runs over the examples i of a batch whose label is not c. The paper's text was not
at hand: the terms are those its abstract and introduction describe, in the form and with the
numbers of the authors' public code, whose entry for an example's own class is exp(0) = 1 instead of
nothing. ``own = "one"`` keeps that and is the default, because it bounds the term from below;
``"left_out"`` leaves the entry out, so that logits sink at an even pace for ever. ``distillation =
0.1`` and ``suppression = 0.005`` are the code's.

Differs from the paper: where a client lacks fewer than two classes the distillation is nothing by
its formula (a softmax of one class is 1), and no teacher is asked. Along a chain the received model
is that of the client before, not the server's.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedskew.errors import RecipeError
from fedskew.objective.loss import Distillation, LocalLoss, Suppression
from fedskew.types import Ints

TINY = 1e-9  # in place of the share of a class that is not there


def fedvls(
    counts: Ints,
    *,
    distillation: float = 0.1,
    suppression: float = 0.005,
    own: Literal["one", "left_out"] = "one",
) -> LocalLoss:
    """Vacant-class distillation and logit suppression.

    >>> fedvls(np.array([3, 0, 0])).distillation.classes.tolist()
    [False, True, True]
    """
    if distillation < 0 or suppression < 0:
        what = f"distillation = {distillation}, suppression = {suppression}"
        raise RecipeError("objective.fedvls", what, "Give numbers from 0 on")
    shares = counts / max(1, int(counts.sum()))
    prior = np.log(shares + TINY)
    vacant = counts == 0
    taught = distillation > 0 and vacant.sum() > 1
    even = np.log(1 / len(counts))
    return LocalLoss(
        shift=prior,
        distillation=Distillation(distillation, classes=vacant) if taught else None,
        suppression=Suppression(suppression * shares, even - prior, own) if suppression else None,
    )
