"""Logits corrected by the client's own label shares, so that it does not unlearn what it lacks.

Menon et al.: "Long-Tail Learning via Logit Adjustment", ICLR 2021, eq 10, with a client's shares in
the place of the training set's:

    CE(z + tau log((p + s) / (g + s)), y)

p are the client's label shares, g those it is to serve: ``reference = "uniform"`` is g = 1 / C,
``"global"`` the shares of the whole federation as the signal has them; they go down to every client
of a round and are charged. A class the client has more of than g gets a higher logit while it
trains, so less of its gradient goes into raising that class further; a class it lacks gets a lower
one, so it is not pushed down.

Differs from the paper: the smoothing ``s``, without which a class the client lacks has no logit at
all.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedskew.errors import RecipeError
from fedskew.objective.loss import LocalLoss
from fedskew.types import Floats, Ints, needs


@needs(when=lambda options: ["signal"] if options.get("reference") == "global" else [])
def logit_adjusted(
    counts: Ints,
    shares: Floats | None = None,
    *,
    tau: float = 1.0,
    smoothing: float = 1e-3,
    reference: Literal["uniform", "global"] = "uniform",
) -> LocalLoss:
    """Prior-corrected logits.

    >>> logit_adjusted(np.array([3, 1]), smoothing=1e-9).shift.round(3).tolist()
    [0.405, -0.693]
    >>> logit_adjusted(np.array([3, 1]), np.array([0.75, 0.25]), reference="global").shift.tolist()
    [0.0, 0.0]
    """
    if tau < 0 or smoothing <= 0:
        what = f"tau = {tau}, smoothing = {smoothing}"
        raise RecipeError("objective.logit_adjusted", what, "Give tau >= 0 and smoothing > 0")
    if reference == "global" and shares is None:
        what = "the federation's label shares are not known"
        raise RecipeError("objective.reference", what, "Add a [signal], or use 'uniform'")
    own = counts / max(1, int(counts.sum()))
    aim = np.full(len(counts), 1 / len(counts)) if shares is None else np.asarray(shares)
    return LocalLoss(shift=tau * np.log((own + smoothing) / (aim + smoothing)))
