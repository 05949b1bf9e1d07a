"""Plain cross-entropy: logits stay as they are, the loss of FedAvg and of all five papers.

A baseline without a paper of its own.
"""

from __future__ import annotations

from fedskew.objective.loss import LocalLoss
from fedskew.types import Ints


def cross_entropy(counts: Ints) -> LocalLoss:
    """CE(z, y)."""
    return LocalLoss()
