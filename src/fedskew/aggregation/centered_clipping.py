"""Updates are drawn towards the last round's step before they are averaged.

Karimireddy, He, Jaggi: "Learning from History for Byzantine Robust Optimization", ICML 2021,
Algorithm 2. v starts as the step of the round before (zero in the first); ``steps`` times v <- v +
mean of (d_i - v) min(1, radius / |d_i - v|), without weights; W <- W + v.

Differs from the paper: there clients send the momentum of their gradients, here the update of a
round, which is the sum of many gradients already; nobody keeps a momentum for a client that may
never come again. ``radius = 0`` takes the median of the last ``window`` distances from v in the
place of a number chosen for one task.

Under label skew it is slow rather than wrong: the last step came from other labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedskew.aggregation.moves import lengths, moves, recent, shortened, stepped
from fedskew.errors import RecipeError
from fedskew.types import AggregationRule, Ends, Memory, Params


@dataclass(frozen=True)
class CenteredClipping(AggregationRule):
    """The last step, corrected by what is left of the differences from it."""

    radius: float = 0.0
    steps: int = 1
    window: int = 50

    def __post_init__(self) -> None:
        if self.radius < 0 or self.steps < 1:
            what = f"radius = {self.radius}, steps = {self.steps}"
            raise RecipeError("aggregation centered_clipping", what, "Give 0 or more, 1 or more")

    def merge(self, memory: Memory, model: Params, ends: Ends) -> tuple[Params, Memory]:
        """One step along the corrected centre."""
        change = moves(model, ends)
        centre = np.asarray(memory.get("centre", np.zeros(change.shape[1])), np.float32)
        seen = recent(memory.get("lengths"), lengths(change - centre), self.window)
        radius = self.radius or float(np.median(seen))
        for _ in range(self.steps):
            away = change - centre
            share = shortened(lengths(away), radius) / len(away)
            centre = centre + share.astype(np.float32) @ away
        return stepped(model, ends, centre), {"centre": centre, "lengths": seen}
