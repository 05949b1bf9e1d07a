"""Each number of the model is averaged without its largest and its smallest values.

Yin, Chen, Kannan, Bartlett: "Byzantine-Robust Distributed Learning: Towards Optimal Statistical
Rates", ICML 2018, Definition 2. Of n values of a coordinate the ``trim`` n largest and as many
smallest are left out, the rest is averaged without weights: what a client says of its size counts
for nothing.

Differs from the paper: ``trim`` n is rounded down, and at least one value (two, if n is even) is
left. It takes models in the place of gradients, which is the same: all of a slot began with one.

Under label skew the one client with a rare label is an outlier in just the numbers that stand for
that label, so they are what is left out (evidence/hostile).
"""

from __future__ import annotations

import numpy as np

from fedskew.aggregation.moves import moves, stepped
from fedskew.errors import RecipeError
from fedskew.types import Ends, Params, declares


@declares(compares=True)
def trimmed_mean(model: Params, ends: Ends, *, trim: float = 0.2) -> Params:
    """The mean of what is left when ``trim`` of the values go at either end."""
    if not 0 <= trim < 0.5:
        raise RecipeError("aggregation.trim", f"{trim} is not a share", "Give 0 to below 0.5")
    return stepped(model, ends, inner_mean(moves(model, ends), int(trim * len(ends.params) + 1e-9)))


def inner_mean(rows: Params, cut: int) -> Params:
    """(F,) the mean of each column without its ``cut`` largest and smallest values.

    >>> inner_mean(np.array([[9.0], [1.0], [2.0], [-50.0]], np.float32), 1)
    array([1.5], dtype=float32)
    """
    kept = np.sort(rows, axis=0)[cut : len(rows) - cut] if cut else rows
    return np.asarray(kept.mean(axis=0), np.float32)
