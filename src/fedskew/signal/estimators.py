"""The server guesses label mixes from moved last layers. THIS IS A PRIVACY ATTACK, put to use.

BACSA (paper 001), eqs 1-9; docs/methods.md 8. A class that a client holds pulls its output neuron
up, an absent class lets it sink, so the update of the C x L output layer and of its C biases tells
the label counts although no client disclosed them. Secure aggregation defeats it. Every client must
start from the same model; one step on all its examples is the best probe (docs/methods.md 8.2).

- ``eq7_raw`` / ``eq7_delta``: A_c / sum A, A_c = mean_l max(0, v_cl)^2. These are shares of SQUARED
  counts, as eq 7 is written.
- ``sqrt_raw`` / ``sqrt_delta``: sqrt(A_c) / sum sqrt(A), the proportions that eq 7 aims at.
- ``bias_linear``: while updates are small, db_c = lr * steps * (p_c - s_c) with s the initial
  softmax, solved for p.
- ``rlu``: least squares on the simplex for the same equation with a softmax that depends on the
  true class (after Chen and Vikalo, ICML 2024, arXiv 2405.00955); needs a few auxiliary inputs.

Differs from the paper: eq 8 divides by the sum over all clients, so its rows are no distributions;
it is left out. ``raw`` methods are the paper's and work only with BACSA's tiny constant
initialisation; ``delta`` (trained minus received) works with any. Measured on 8x8 digits, Dirichlet
0.5, E = 1, lr 0.01 (docs/methods.md 8.3): total variation 0.258 eq7_raw, 0.206 sqrt_delta, 0.055
bias_linear.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike

from fedskew.errors import SignalError
from fedskew.types import Floats

Estimator: TypeAlias = Literal[
    "bias_linear", "eq7_raw", "eq7_delta", "sqrt_raw", "sqrt_delta", "rlu"
]


def estimate(
    weights: ArrayLike | None,
    bias: ArrayLike | None = None,
    *,
    method: Estimator = "bias_linear",
    lr: float | None = None,
    steps: ArrayLike | None = None,
    initial_softmax: ArrayLike | None = None,
    confusion: ArrayLike | None = None,
) -> Floats:
    """(n, C) estimated label proportions; a row the method learns nothing from is uniform.

    Parameters
    ----------
    weights : (n, C, L) output layer, one per client: the CHANGE (trained minus received), except
    for the ``raw`` methods, which
        take the trained weights themselves. The bias methods do not look at it.
    bias : (n, C) change of the output bias (trained minus received); ``bias_linear`` and ``rlu``
    use it alone. lr, steps : learning rate and number of local steps (one number, or one per
    client) of plain SGD, for the bias methods. initial_softmax : (C,) mean softmax of the received
    model, for ``bias_linear``; uniform if not given. confusion : (C, C) or (n, C, C), for ``rlu``:
    row c is the mean softmax on inputs of class c, averaged over the received and
        the trained model.
    """
    if method in ("eq7_raw", "eq7_delta"):
        return _shares(_energy(weights))
    if method in ("sqrt_raw", "sqrt_delta"):
        return _shares(np.sqrt(_energy(weights)))
    pull = _mean_pull(bias, method, lr, steps)
    if method == "bias_linear":
        start = (
            np.full(pull.shape[1], 1 / pull.shape[1])
            if initial_softmax is None
            else np.asarray(initial_softmax, float)
        )
        return _shares(np.maximum(0, start + pull))
    if confusion is None:
        raise SignalError(
            "signal.estimated",
            "rlu needs the mean softmax per class",
            "Give confusion, or use bias_linear",
        )
    return _on_simplex(pull, np.asarray(confusion, np.float64))


def choose_estimator(*, has_bias: bool, plain_sgd: bool) -> Estimator:
    """``bias_linear`` where its equation holds, else ``sqrt_delta``.

    It does not hold without an output bias, or with Adam or momentum at the clients.

    >>> choose_estimator(has_bias=True, plain_sgd=True)
    'bias_linear'
    >>> choose_estimator(has_bias=True, plain_sgd=False)
    'sqrt_delta'
    """
    return "bias_linear" if has_bias and plain_sgd else "sqrt_delta"


def refresh(previous: Floats, newer: Floats, *, weight: float = 0.5) -> Floats:
    """Blend a later estimate of the same clients into the earlier one (docs/methods.md 8.2).

    An exponential moving average.
    """
    blended: Floats = (1 - weight) * previous + weight * newer
    return blended


def bacsa_initial_weight(num_inputs: int, width: int, num_outputs: int) -> float:
    """BACSA's constant for every output weight, sqrt(1 / (inputs * width * outputs)).

    The output bias starts at 0.

    >>> f"{bacsa_initial_weight(32 * 32 * 3, 192, 10):.1e}"
    '4.1e-04'
    """
    return math.sqrt(1 / (num_inputs * width * num_outputs))


# ---------------------------------------------------------------- inside


def _energy(weights: ArrayLike | None) -> Floats:
    """(n, C) A_c of eq 7."""
    if weights is None:
        raise SignalError(
            "signal.estimated",
            "this method needs the output weights",
            "Give weights, or use bias_linear",
        )
    energy: Floats = np.square(np.maximum(0, _finite(weights, "weights", 3))).mean(axis=2)
    return energy


def _shares(amounts: Floats) -> Floats:
    """Rows scaled to sum to 1; uniform where there is nothing to scale."""
    totals = amounts.sum(axis=1, keepdims=True)
    return np.where(totals > 0, amounts / np.where(totals > 0, totals, 1), 1 / amounts.shape[1])


def _mean_pull(
    bias: ArrayLike | None, method: str, lr: float | None, steps: ArrayLike | None
) -> Floats:
    """(n, C) change of the bias per unit of learning rate and step.

    To first order p_c minus the mean softmax.
    """
    if bias is None or lr is None or steps is None:
        raise SignalError(
            "signal.estimated",
            f"{method} needs bias, lr and steps",
            "Give all three, or use sqrt_delta",
        )
    change = _finite(bias, "bias", 2)
    path = lr * np.broadcast_to(np.asarray(steps, np.float64), len(change))
    if not (path > 0).all():
        raise SignalError(
            "signal.estimated",
            "lr and steps must be above 0",
            "Leave out clients that took no step",
        )
    pull: Floats = change / path[:, None]
    return pull


def _on_simplex(pull: Floats, confusion: Floats) -> Floats:
    """Per client the distribution p that minimises |pull - (I - A)' p|, A its confusion matrix.

    On the simplex pull = pull 1'p, so the residual is B p with B = pull 1' - (I - A)'. Non-negative
    least squares on B with one more row 1'p = 1 has as its answer a multiple of the best p,
    whatever that row's weight: for p = t u the best t depends on |B u| only, and what is left grows
    with |B u|. So normalising the answer is exact.
    """
    num, classes = pull.shape
    rows = np.empty_like(pull)
    for client, matrix in enumerate(np.broadcast_to(confusion, (num, classes, classes))):
        residual = pull[client][:, None] - (np.eye(classes) - matrix).T
        rows[client] = scipy.optimize.nnls(
            np.vstack([residual, np.ones(classes)]), np.eye(classes + 1)[-1]
        )[0]
    return _shares(rows)


def _finite(values: ArrayLike, name: str, ndim: int) -> Floats:
    table = np.asarray(values, np.float64)
    if table.ndim != ndim:
        raise SignalError(
            "signal.estimated",
            f"{name} has shape {table.shape}",
            f"Give {ndim} dimensions, clients first",
        )
    bad = ~np.isfinite(table).reshape(len(table), -1).all(axis=1)
    if bad.any():
        raise SignalError(
            "signal.estimated",
            f"{name} of client {int(bad.argmax())} is not finite",
            "Leave that client out",
        )
    return table
