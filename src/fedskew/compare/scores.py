"""The columns of a comparison, and which figure of a run stands in each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedskew.experiment import figures
from fedskew.experiment.figures import Resource
from fedskew.experiment.run import Run


@dataclass(frozen=True)
class Metric:
    """One column of a comparison."""

    key: str
    title: str
    better: int  # 1 = more is better, -1 = less is, 0 = neither
    kind: str = "share"  # share | count | bytes | seconds | joules
    to_target: bool = False
    meaning: str = ""  # in a few words, where the title does not say it


METRICS = (
    Metric("final", "final accuracy", 1, meaning="mean of the last five evaluations"),
    Metric("best", "best", 1, meaning="highest accuracy of any evaluation"),
    Metric("at_budget", "at equal budget", 1, meaning="final accuracy, cut off at that budget"),
    Metric(
        "client_accuracy",
        "clients' accuracy",
        1,
        meaning="on each client's own test set, by test examples",
    ),
    Metric("worst10", "worst tenth", 1, meaning="accuracy of the tenth of clients served worst"),
    Metric("ad", "AD", -1, meaning="mean distance of the clients' accuracies from 1; 0 is perfect"),
    Metric("sdad", "SDAD", 0, meaning="standard deviation of that distance; 0 = all served alike"),
    Metric("rounds_to", "rounds to target", -1, "count", True),
    Metric("bytes_to", "bytes to target", -1, "bytes", True),
    Metric("time_to", "time to target", -1, "seconds", True),
    Metric("energy_to", "energy to target", -1, "joules", True),
    Metric(
        "jain",
        "Jain",
        0,
        meaning="how evenly clients were chosen; 1 = equally often, m/K = always the same m",
    ),
    Metric("never", "never chosen", 0, meaning="share of the clients that never trained"),
    Metric("bytes", "bytes", -1, "bytes", meaning="sent in a whole run, all directions"),
    Metric("time", "simulated time", -1, "seconds", meaning="of the clients' devices and links"),
    Metric("energy", "energy", -1, "joules", meaning="of the clients"),
)
METRIC = {metric.key: metric for metric in METRICS}
OF_CLIENTS = ("client_accuracy", "worst10", "ad", "sdad")  # metrics that references have


def scores_of(run: Run) -> dict[str, float]:
    """Every metric that needs neither a budget nor a target."""
    return {
        "final": figures.final_accuracy(run),
        "best": figures.best_accuracy(run),
        **client_scores(run),
        "jain": figures.evenness(run),
        "never": figures.share_never_chosen(run),
        "bytes": figures.total(run, "bytes"),
        "time": figures.total(run, "time"),
        "energy": figures.total(run, "energy"),
    }


def client_scores(run: Run) -> dict[str, float]:
    """Accuracy over clients (weighted by test examples), of the worst tenth of them, AD and SDAD
    (docs/methods.md 9.5); nan where clients have no test sets.
    """
    figures_of_clients = run.fairness
    if figures_of_clients is None:
        return dict.fromkeys(OF_CLIENTS, math.nan)
    return {
        "client_accuracy": figures_of_clients.weighted,
        "worst10": figures_of_clients.worst10,
        "ad": figures_of_clients.ad,
        "sdad": figures_of_clients.sdad,
    }


def target_scores(run: Run, target: float) -> dict[str, tuple[float, bool]]:
    """Metric -> (what was spent when the target was reached, False), or (all that was spent,
    True) if it never was.
    """
    reached = run.to_target(target)
    until: Mapping[str, tuple[Resource, Any]] = {
        "rounds_to": ("rounds", reached.rounds),
        "bytes_to": ("bytes", reached.bytes),
        "time_to": ("time", reached.seconds),
        "energy_to": ("energy", reached.joules),
    }
    if reached.censored:
        return {key: (figures.total(run, of), True) for key, (of, _) in until.items()}
    return {key: (math.nan if n is None else float(n), False) for key, (_, n) in until.items()}
