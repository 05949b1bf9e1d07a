"""The next model is the point with the smallest sum of distances to those that came back (RFA).

Pillutla, Kakade, Harchaoui: "Robust Aggregation for Federated Learning", IEEE Transactions on
Signal Processing 2022, Algorithm 2 (smoothed Weiszfeld). From the mean: b_i = a_i / max(nu, |v -
w_i|), v <- sum b_i w_i / sum b_i; a_i are the shares of examples.

Differs from the paper: it goes on until v stands still (``tolerance``, as a share of the largest
weight) or for ``steps`` rounds of its own, where the paper stops after 3. Nothing is sent to
clients for it, since the server sees the models; the paper's secure sums are not played.

Updates more than 1000 times as long as the median one are shortened to that first: how hard a far
point pulls does not depend on how far it is, and squares of 1e30 would leave no digits for others.

The point is always a weighted mean of the ends, so each step works on their n weights and n x n
products, never on whole models: 100 steps cost as much as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedskew.aggregation.krum import squared_distances
from fedskew.aggregation.mean import normalised
from fedskew.aggregation.moves import lengths, moves, shortened, stepped
from fedskew.errors import RecipeError
from fedskew.types import AggregationRule, Ends, Floats, Memory, Params

FAR = 1000.0  # times the median length


@dataclass(frozen=True)
class GeometricMedian(AggregationRule):
    """The smoothed geometric median of weights and float buffers; counters take the median."""

    weights: Literal["examples", "uniform"] = "examples"
    nu: float = 1e-6
    steps: int = 100
    tolerance: float = 1e-6

    compares = True

    def __post_init__(self) -> None:
        if self.nu <= 0 or self.steps < 1:
            what = f"nu = {self.nu}, steps = {self.steps}"
            raise RecipeError("aggregation geometric_median", what, "Give both above 0")

    def merge(self, memory: Memory, model: Params, ends: Ends) -> tuple[Params, Memory]:
        """The mean of the ends by Weiszfeld's weights."""
        change = moves(model, ends)
        long = lengths(change)
        shrink = shortened(long, FAR * float(np.median(long)))
        change = change * shrink.astype(np.float32)[:, None]
        own = self._weights(normalised(ends, self.weights), squared_distances(change))
        return stepped(model, ends, own.astype(np.float32) @ change), memory

    def _weights(self, shares: Floats, apart: Floats) -> Floats:
        """(n,) what each end weighs in the median: |v - w_i|^2 = (A b)_i - b'A b / 2, where A has
        the squared distances and b sums to 1.
        """
        own = shares
        for _ in range(self.steps):
            pull = apart @ own
            away = np.sqrt(np.maximum(pull - own @ pull / 2, 0.0))
            before, own = own, shares / np.maximum(self.nu, away)
            own = own / own.sum()
            if np.abs(own - before).max() <= self.tolerance * own.max():
                break
        return own
