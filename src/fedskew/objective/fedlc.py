"""Classes a client has little of get a margin, so that it does not unlearn them (FedLC).

Zhang, Li, Li, Xu, Wu, Ding, Wu: "Federated Learning with Label Distribution Skew via Logits
Calibration", ICML 2022: every logit is lowered by a margin that grows as the client's own
count n_c of that class falls,

    z'_c = z_c - tau n_c^(-1/4),        loss = -z'_y + log sum_c exp(z'_c)

The paper writes the sum without the true class (c != y), common code takes the cross-entropy, which
has all classes. ``denominator = "all"`` is the default: without the true class the loss has no
lower bound and an example that is right by far is pushed as hard as one that is wrong, and a client
of one class, whose other margins are infinite, would have no loss at all. ``"others"`` is the paper
to the letter.

Differs from the paper: besides the sum, a class the client lacks has an infinite margin there; here
it counts as ``absent`` examples (1e-12, a margin of 1000 tau), which takes it out of the softmax
all the same and stays a number.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedskew.errors import RecipeError
from fedskew.objective.loss import LocalLoss
from fedskew.types import Ints


def fedlc(
    counts: Ints,
    *,
    tau: float = 1.0,
    absent: float = 1e-12,
    denominator: Literal["all", "others"] = "all",
) -> LocalLoss:
    """Logits calibrated by the client's own counts.

    >>> fedlc(np.array([16, 81])).shift.round(3).tolist()
    [-0.5, -0.333]
    """
    if tau < 0 or absent <= 0:
        what = f"tau = {tau}, absent = {absent}"
        raise RecipeError("objective.fedlc", what, "Give tau >= 0 and absent > 0")
    margin = tau * np.where(counts > 0, counts, absent) ** -0.25
    return LocalLoss(shift=-margin, others_only=denominator == "others")
