"""One client after another: each trains on what the one before it learnt (FedSeQ, paper 003).

AFLS (paper 003), sections on FedSeQ and FedSeQ-D2D; docs/methods.md 6.2, 6.3. A fresh random order
every round. Through the server or from device to device the models are the same bit for bit; what
differs is who carries them, which accounting charges.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedskew.types import Chain, Ints, Plan, View, declares


@declares(hands_on=True)
def sequential(
    ids: Ints,
    view: View,
    rng: np.random.Generator,
    *,
    relay: Literal["server", "d2d"] = "server",
    broken: Literal["skip", "drop"] = "skip",
) -> Plan:
    """One chain of everyone selected, in random order. ``broken``: a client that fails is
    skipped, or ends the chain.
    """
    order = tuple(int(client) for client in rng.permutation(ids))
    return Plan((Chain(0, order),) if order else (), relay=relay, broken=broken)
