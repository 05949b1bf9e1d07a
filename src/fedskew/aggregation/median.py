"""Each number of the next model is the median of what came back.

Yin, Chen, Kannan, Bartlett: "Byzantine-Robust Distributed Learning: Towards Optimal Statistical
Rates", ICML 2018, Definition 1. Without weights: what a client says of its size counts for nothing.
Of an even number of values it is the mean of the two in the middle.

Differs from the paper: models in the place of gradients, which is the same: all of a slot began
with one.

It costs 4 ms for ten models of 200,000 numbers (sorted as a block; ``np.median`` needs three times
as long). Under label skew it is the vote of the many against the one client with a rare label
(evidence/hostile). Of one or two ends it is the mean, so it protects nobody there.
"""

from __future__ import annotations

from fedskew.aggregation.moves import moves, stepped
from fedskew.aggregation.trimmed_mean import inner_mean
from fedskew.types import Ends, Params, declares


@declares(compares=True)
def median(model: Params, ends: Ends) -> Params:
    """The median of every weight and float buffer; of integer counters the lower one."""
    return stepped(model, ends, inner_mean(moves(model, ends), (len(ends.params) - 1) // 2))
