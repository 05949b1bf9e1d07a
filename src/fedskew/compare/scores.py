"""The figures one run is judged by: accuracy in the end and at a budget, spread over clients,
cost to a target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedskew.accounting.fairness import fairness
from fedskew.accounting.participation import jain
from fedskew.accounting.targets import first_held
from fedskew.experiment.history import History, Resource
from fedskew.types import Floats

LAST = 5  # "final" is the mean of this many last evaluations


@dataclass(frozen=True)
class Metric:
    """One column of a comparison."""

    key: str
    title: str
    better: int  # 1 = more is better, -1 = less is, 0 = neither
    kind: str = "share"  # share | count | bytes | seconds | joules
    to_target: bool = False


METRICS = (
    Metric("final", "final accuracy", 1),
    Metric("best", "best", 1),
    Metric("at_budget", "at equal budget", 1),
    Metric("client_accuracy", "clients' accuracy", 1),
    Metric("ad", "AD", -1),
    Metric("sdad", "SDAD", 0),
    Metric("rounds_to", "rounds to target", -1, "count", True),
    Metric("bytes_to", "bytes to target", -1, "bytes", True),
    Metric("time_to", "time to target", -1, "seconds", True),
    Metric("energy_to", "energy to target", -1, "joules", True),
    Metric("jain", "Jain", 0),
    Metric("never", "never chosen", 0),
    Metric("bytes", "bytes", -1, "bytes"),
    Metric("time", "simulated time", -1, "seconds"),
    Metric("energy", "energy", -1, "joules"),
)
SPENT: Mapping[str, Resource] = {
    "rounds_to": "rounds",
    "bytes_to": "bytes",
    "time_to": "time",
    "energy_to": "energy",
}


def last_mean(accuracies: Floats) -> float:
    """Mean of the last five evaluations; the untrained model (the first) only counts if there is
    nothing else.

    >>> last_mean(np.array([0.1, 0.5, 0.25, 0.5, 0.75, 1.0, 1.0])), last_mean(np.array([0.1, 0.5]))
    (0.7, 0.5)
    """
    trained = accuracies[1:] if len(accuracies) > 1 else accuracies
    return float(np.mean(trained[-LAST:])) if len(trained) else math.nan


def at_budget(history: History, resource: Resource, budget: float) -> float:
    """Mean of the last five evaluations within a budget."""
    known, accuracies, _ = history.evaluated
    return last_mean(accuracies[history.spent(resource)[known] <= budget * (1 + 1e-12)])


def to_target(history: History, target: float) -> dict[str, tuple[float, bool]]:
    """Metric -> (what was spent when the target was reached, False), or (all that was spent,
    True) if it never was.
    """
    known, accuracies, _ = history.evaluated
    position = first_held(accuracies, target)
    index = -1 if position is None else int(known[position])
    return {
        key: (float(history.spent(resource)[index]), position is None)
        for key, resource in SPENT.items()
    }


def client_scores(clients: Mapping[str, Any]) -> dict[str, float]:
    """Accuracy over clients (weighted by test examples), AD and SDAD (METHODS 9.5); nan where
    clients have no test sets.

    >>> client_scores({"accuracy": [1.0, 0.5, None], "test_examples": [1, 3, 0]})
    {'client_accuracy': 0.625, 'ad': 0.25, 'sdad': 0.25}
    """
    if "accuracy" not in clients:
        return dict.fromkeys(("client_accuracy", "ad", "sdad"), math.nan)
    accuracy = np.array(clients["accuracy"], np.float64)
    found = fairness(accuracy, clients.get("test_examples", np.ones(len(accuracy), np.int64)))
    return {"client_accuracy": found.weighted, "ad": found.ad, "sdad": found.sdad}


def scores_of(history: History) -> dict[str, float]:
    """Every metric that needs neither a budget nor a target."""
    _, accuracies, _ = history.evaluated
    times = history.times_selected
    totals = {key: float(history.spent(key)[-1]) for key in ("bytes", "time", "energy")}
    return {
        "final": last_mean(accuracies),
        "best": float(accuracies.max()) if len(accuracies) else math.nan,
        **client_scores(history.clients),
        "jain": jain(times),
        "never": float((times == 0).mean()),
        **totals,
    }
