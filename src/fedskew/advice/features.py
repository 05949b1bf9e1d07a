"""What a federation looks like to the adviser: numbers from label counts and from how it trains.

All can be had before anything is trained. Logarithms where a factor matters, shares elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedskew.distance import skew_figures
from fedskew.labels.omega import omega_balanced
from fedskew.streams import stream
from fedskew.types import Floats, Ints

GROUPS = 200  # random groups behind ``group_skew``


@dataclass(frozen=True)
class Training:
    """How clients train, as far as it tells one federation from another."""

    per_round: int  # m
    epochs: int
    batch: int
    lr: float


def features_of(table: Ints, training: Training) -> dict[str, float]:
    """Name -> number, from a (K, C) table of label counts; clients without examples do not count.

    >>> pairs = np.kron(np.eye(5, dtype=int), [[9, 9], [9, 9]])
    >>> features = features_of(pairs, Training(per_round=5, epochs=1, batch=9, lr=0.1))
    >>> round(features["omega"], 3), features["classes"], round(math.exp(features["steps"]), 3)
    (0.877, 0.2, 2.0)
    """
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    figures = skew_figures(table)
    size, classes = table.shape
    examples = figures.num_examples / size
    most = omega_balanced(1, classes) if classes > 1 else 1.0
    per_round = min(training.per_round, size)
    return {
        "hd": figures.hd,
        "jsd": figures.jsd,
        "spread": figures.omega_reverse / math.log(classes) if classes > 1 else 0.0,
        "omega": figures.omega / most,
        "wpsi": math.log1p(figures.wpsi),
        "classes": figures.classes_mean / classes,
        "group_skew": group_skew(table, per_round),
        "imbalance": _imbalance(table),
        "size_gini": figures.size_gini,
        "clients": math.log(size),
        "share": math.log(per_round / size),
        "num_classes": math.log(classes),
        "examples": math.log(examples),
        "steps": math.log(training.epochs * max(1.0, examples / training.batch)),
        "lr": math.log(max(training.lr, 1e-9)),
    }


def group_skew(table: Ints, per_round: int) -> float:
    """How far the labels of a random group of m clients lie from those of all: total variation, in
    the mean over groups. What random selection suffers from.

    >>> group_skew(np.array([[5, 0], [0, 5]]), 1), group_skew(np.array([[5, 0], [0, 5]]), 2)
    (0.5, 0.0)
    """
    rng = stream(0, "advise")
    everybody: Floats = table.sum(axis=0) / table.sum()
    apart = []
    for _ in range(GROUPS if per_round < len(table) else 1):
        group = table[rng.choice(len(table), per_round, replace=False)].sum(axis=0)
        apart.append(float(np.abs(group / group.sum() - everybody).sum()) / 2)
    return float(np.mean(apart))


def _imbalance(table: Ints) -> float:
    """Of the labels of all together: 0 = as many of each, near 1 = almost only one."""
    shares = table.sum(axis=0) / table.sum()
    if len(shares) < 2:
        return 0.0
    return 1 + float((shares * np.log(shares)).sum()) / math.log(len(shares))
