"""Label proportions guessed from a probe: clients train a little, the server reads output layers.

BACSA (paper 001), eqs 1-9; docs/methods.md 8. Everybody starts from the first model. THIS IS A
PRIVACY ATTACK, put to use: see :mod:`fedskew.signal.estimators` for what each method computes and
how well. Needs no disclosure by the clients, costs one model down and one up for each of them.

Differs from the paper: the probe is explicit (the paper's box leaves open when estimation happens),
and its default is one gradient step on all of a client's examples, from an output layer whose first
guesses are all alike, read with ``bias_linear``: then the bias moves by lr (p - 1/C), and the
estimate is exact up to rounding (docs/methods.md 8.2, evidence/estimation). It costs the bytes of
any other probe. ``batch = 32, lr = 0.001, start = "model"`` is the probe of old, which fails on
clients with many steps.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedskew.signal.estimators import choose_estimator, estimate
from fedskew.types import Floats, HeadUpdates, Signal


def estimated(
    updates: HeadUpdates,
    *,
    method: Literal[
        "auto", "bias_linear", "eq7_raw", "eq7_delta", "sqrt_raw", "sqrt_delta", "rlu"
    ] = "auto",
    probe: Literal["all", "cover"] = "all",
    epochs: int = 1,
    batch: int = 0,
    lr: float = 0.01,
    start: Literal["even", "model"] = "even",
) -> Signal:
    """Estimate every client's label proportions from its update of the output layer.

    ``probe``: ``all`` clients at once, or in ceil(K / m) covering rounds of m (``cover``); both
    from the first model, which stays as it was, so both give the same estimates and cost the same
    bytes. ``epochs``, ``batch`` (0: all of a client's examples at once) and ``lr`` are the probe's
    (plain SGD). ``start = "even"`` sends the first model with an output layer of zeros, unless its
    rows are alike already (``model.head_init = "bacsa"``); ``"model"`` sends it as it is. ``rlu``
    needs examples of the server's own: ``data.auxiliary``. A client whose probe failed counts as
    uniform: nothing is known of it.
    """
    chosen = (
        choose_estimator(has_bias=updates.bias is not None, plain_sgd=True)
        if method == "auto"
        else method
    )
    weight = updates.weight if chosen.endswith("_raw") else updates.weight - updates.received_weight
    bias = (
        None
        if updates.bias is None or updates.received_bias is None
        else updates.bias - updates.received_bias
    )
    rows: Floats = np.full(updates.weight.shape[:2], 1 / updates.weight.shape[1])
    answered = updates.answered
    if answered.any():
        rows[answered] = estimate(
            weight[answered],
            None if bias is None else bias[answered],
            method=chosen,
            lr=lr,
            steps=updates.steps[answered],
            confusion=None if updates.confusion is None else updates.confusion[answered],
        )
    known = updates.num_examples > 0
    sizes = updates.num_examples.astype(np.float64)
    return Signal(np.where(known[:, None], rows, 0.0), sizes, "estimated", known=known)
