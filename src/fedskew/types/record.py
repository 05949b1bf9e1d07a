"""What one round did and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedskew.types.plan import Chain


@dataclass(frozen=True)
class Transfer:
    """Bytes of one kind in one direction. ``multicast`` is what they cost when one send reaches everybody."""

    direction: Literal["down", "up", "d2d"]
    kind: Literal["model", "control", "loss", "histogram", "order", "latency", "gradient", "probe"]
    bytes: int
    multicast: int


@dataclass(frozen=True)
class RoundRecord:
    """What one round did and cost, as it is written to disk. Round 0 is the state before training."""

    round: int
    chains: tuple[Chain, ...]
    loss: Mapping[int, float]  # client -> loss it reported, usable replies only
    failures: Mapping[int, str]  # client -> why its reply was not used
    transfers: tuple[Transfer, ...]
    accuracy: float  # nan = not evaluated in this round
    test_loss: float
    seconds: float  # wall time; differs from run to run, everything above does not
    client_seconds: Mapping[int, float]
    simulated_seconds: float = float("nan")  # how long the round takes on the clients' devices; nan = not modelled
    joules: float = float("nan")  # what the clients spend on it; nan = not modelled
    client_accuracy: float = float("nan")  # of every client's own model on its own test set; nan = not evaluated
