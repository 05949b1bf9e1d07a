"""What to hold a skew figure against: the most it can be, and what it would be by chance.

HD = 0.9 sounds near 1 but the ceiling for 100 clients and 10 classes is 0.953; HD = 0.5 sounds like
skew but clients of six examples each reach it when every example is dealt at random.
docs/methods.md 1.7 gives the ceilings; the chance value is ours.
"""

from __future__ import annotations

import math

import numpy as np

from fedskew.distance.skew import hellinger_skew
from fedskew.measure.counts import Counts
from fedskew.signal.counts import proportions
from fedskew.streams import stream
from fedskew.types import Floats

# the chance value of a small federation is the mean of several draws: about this many clients in
# all
CHANCE_CLIENTS = 2_000


def one_class_each(num_clients: int, num_classes: int) -> tuple[float, float]:
    """(HD, JSD) when every client has one class, evenly: the ceilings.

    The numbers of clients per class differ by one at most.

    >>> [round(value, 6) for value in one_class_each(100, 10)]
    [0.953463, 0.707107]
    """
    if num_clients < 2:
        return 0.0, 0.0
    owners = np.full(num_classes, num_clients // num_classes, np.float64)
    owners[: num_clients % num_classes] += 1
    shares = owners[owners > 0] / num_clients
    hd = math.sqrt(max(0.0, 1 - float(shares @ shares)) * num_clients / (num_clients - 1))
    return hd, math.sqrt(max(0.0, -float(shares @ np.log(shares))) / math.log(num_clients))


def hd_by_chance(counts: Counts, seed: int) -> float:
    """Mean HD of clients of the same sizes whose examples are drawn from the label mix of all.

    >>> round(hd_by_chance(Counts([[5, 5]] * 40, [""] * 40, ["a", "b"]), 0), 2)
    0.17
    """
    sizes = counts.table.sum(axis=1)
    sizes = sizes[sizes > 0]
    mix: Floats = counts.table.sum(axis=0) / counts.table.sum()
    rng = stream(seed, "chance")
    draws = max(1, min(50, CHANCE_CLIENTS // len(sizes)))
    return float(
        np.mean([hellinger_skew(proportions(rng.multinomial(sizes, mix))) for _ in range(draws)])
    )
