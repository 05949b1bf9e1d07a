"""Logistic regression: a linear layer and a softmax, paper 004's for ACSIncome (docs/methods.md
10).
"""

from __future__ import annotations

from fedskew.models.border import Module, Shape, count_features


def logistic(shape: Shape, num_classes: int) -> Module:
    """One linear layer on the flattened example: (d + 1)·C weights."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(count_features(shape), num_classes))
