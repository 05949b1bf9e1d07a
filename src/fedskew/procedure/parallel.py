"""Everyone starts from the same model at the same time (FedAvg; FedTrA in paper 003)."""

from __future__ import annotations

import numpy as np

from fedskew.types import Chain, Ints, Plan, View


def parallel(ids: Ints, view: View, rng: np.random.Generator) -> Plan:
    """One chain of length one per client."""
    return Plan(tuple(Chain(0, (int(client),)) for client in ids))
