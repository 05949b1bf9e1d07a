"""Logits corrected by the client's own label shares, so that it does not unlearn what it lacks.

Menon et al.: "Long-Tail Learning via Logit Adjustment", ICLR 2021, eq 10, with a client's shares in
the place of the training set's:

    CE(z + tau log((p + s) / (g + s)), y),     p = the client's label shares, g = 1 / C

A class the client has much of gets a higher logit while it trains, so less of its gradient goes
into raising that class further; a class it lacks gets a lower one, so it is not pushed down.

Differs from the paper: the smoothing ``s``, without which a class the client lacks has no logit at
all.
"""

from __future__ import annotations

import numpy as np

from fedskew.errors import RecipeError
from fedskew.objective.logits import LogitChange
from fedskew.types import Ints


def logit_adjusted(counts: Ints, *, tau: float = 1.0, smoothing: float = 1e-3) -> LogitChange:
    """Prior-corrected logits.

    >>> logit_adjusted(np.array([3, 1]), smoothing=1e-9).shift.round(3).tolist()
    [0.405, -0.693]
    """
    if tau < 0 or smoothing <= 0:
        what = f"tau = {tau}, smoothing = {smoothing}"
        raise RecipeError("objective.logit_adjusted", what, "Give tau >= 0 and smoothing > 0")
    shares = counts / max(1, int(counts.sum()))
    even = 1 / len(counts)
    return LogitChange(shift=tau * np.log((shares + smoothing) / (even + smoothing)))
