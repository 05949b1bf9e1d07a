"""What an app's author says about a run, what the run says to its clients, and what it keeps of
their metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, MetricRecord

from fedskew.accounting.devices import Devices
from fedskew.runtime.flower.app_letters import Merge
from fedskew.types import Floats, Ints, Population

Evaluate = Callable[[int, Any], MetricRecord | None]


@dataclass(frozen=True)
class Terms:
    """What an app's author says about a run, as to Flower's own strategies."""

    train_config: ConfigRecord = field(default_factory=ConfigRecord)
    evaluate_config: ConfigRecord = field(default_factory=ConfigRecord)
    evaluate_fn: Evaluate | None = None
    merge_train: Merge | None = None
    merge_evaluate: Merge | None = None
    fraction_evaluate: float = 1.0
    min_evaluate_nodes: int = 2
    min_available_nodes: int = 2


@dataclass
class Diary:
    """Metrics by round, as Flower's Result has them."""

    train: dict[int, MetricRecord] = field(default_factory=dict)
    evaluate: dict[int, MetricRecord] = field(default_factory=dict)
    central: dict[int, MetricRecord] = field(default_factory=dict)


def told(config: ConfigRecord, round: int) -> ConfigRecord:
    """The app's configuration with the round in it, as Flower's strategies send it."""
    return ConfigRecord({**config, "server-round": round})


def population_of(sizes: Ints, seconds: Floats) -> Population:
    """Clients whose turns took so long, from message to answer (nan: not known, then the median):
    the clock of the account is the server's own.
    """
    known = seconds[~np.isnan(seconds)]
    usual = float(np.median(known)) if len(known) else 0.0
    return Population(
        sizes,
        seconds_per_example=np.zeros(len(sizes)),
        latency_seconds=seconds,
        uplink_bps=np.full(len(sizes), np.inf),
        watts=np.full(len(sizes), Devices().watts),
        delay_seconds=np.where(np.isnan(seconds), usual, seconds),
    )
