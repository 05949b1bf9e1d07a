"""Updates that are longer than usual are shortened before they are averaged.

Sun, Kairouz, Suresh, McMahan: "Can You Really Backdoor Federated Learning?", 2019, section 4 (norm
thresholding): W <- W + mean of d_i min(1, M / |d_i|).

Differs from the paper: M is not given but ``factor`` times the median length of the last ``window``
updates of the slot, this round's among them, as they came and not as they were shortened. So it
holds while fewer than half of the clients of several rounds are hostile, not of every round.

It bounds how far one client can push, not whereto: a reversed update of ordinary length passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedskew.aggregation.mean import normalised
from fedskew.aggregation.moves import lengths, moves, recent, shortened, stepped
from fedskew.types import AggregationRule, Ends, Memory, Params


@dataclass(frozen=True)
class ClippedMean(AggregationRule):
    """The mean of updates none of which is longer than ``factor`` times the usual length."""

    factor: float = 1.0
    window: int = 50
    weights: Literal["examples", "uniform"] = "examples"

    def merge(self, memory: Memory, model: Params, ends: Ends) -> tuple[Params, Memory]:
        """One step along the mean of the shortened updates."""
        change = moves(model, ends)
        long = lengths(change)
        seen = recent(memory.get("lengths"), long, self.window)
        share = normalised(ends, self.weights)
        share = share * shortened(long, self.factor * float(np.median(seen)))
        return stepped(model, ends, share.astype(np.float32) @ change), {"lengths": seen}
