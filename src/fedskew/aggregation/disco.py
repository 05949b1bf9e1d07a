"""The average leans on clients whose labels are close to a balanced mix, not on size alone
(FedDisco).

Ye, Xu, Wang, Xu, Chen, Wang: "FedDisco: Federated Learning with Discrepancy-Aware Collaboration",
ICML 2023, eq 8: the weight of client k is ReLU(n_k - a d_k + b), made to sum to 1; n_k its share of
the examples, d_k how far its label shares are from the target. The paper recommends a = 0.5,
b = 0.1.

Differs from the paper: n_k are shares of the clients that trained, since few of all do; d_k comes
from the recipe's signal, so noised or estimated counts serve too. A chain counts as one client that
holds the examples of all its clients. Where no weight is positive, the examples alone decide.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedskew.aggregation.mean import average, normalised
from fedskew.types import Ends, Floats, Params, needs


@needs("signal")
def feddisco(
    model: Params,
    ends: Ends,
    *,
    a: float = 0.5,
    b: float = 0.1,
    distance: Literal["l2", "kl"] = "l2",
) -> Params:
    """Average with weights that fall with the distance of a client's label shares from uniform."""
    return average(ends, disco_weights(normalised(ends, "examples"), ends.mixes, a, b, distance))


def disco_weights(
    sizes: Floats, mixes: Floats | None, a: float, b: float, distance: Literal["l2", "kl"] = "l2"
) -> Floats:
    """One weight per model, summing to 1.

    >>> disco_weights(np.array([0.5, 0.5]), np.array([[1, 0], [0.5, 0.5]]), 0.5, 0.1).round(3)
    array([0.291, 0.709])
    """
    if mixes is None:  # a rule that is called without a loop
        return sizes
    raw = np.maximum(sizes - a * _discrepancy(mixes, distance) + b, 0.0)
    return np.asarray(raw / raw.sum() if raw.sum() > 0 else sizes, np.float64)


def _discrepancy(mixes: Floats, distance: str) -> Floats:
    """(n,) how far each mix is from the uniform one."""
    uniform = 1 / mixes.shape[1]
    if distance == "l2":
        return np.asarray(np.linalg.norm(mixes - uniform, axis=1), np.float64)
    shares = np.where(mixes > 0, mixes, 1.0)  # 0 ln 0 = 0
    return np.asarray((mixes * np.log(shares / uniform)).sum(axis=1), np.float64)
