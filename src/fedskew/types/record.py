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
    accuracy: float  # of the one global model on the central test set; nan = not evaluated, or there are several models
    test_loss: float
    seconds: float  # wall time; differs from run to run, everything above does not
    client_seconds: Mapping[int, float]
    client_accuracy: float = float(
        "nan"
    )  # every client's own model on its own test set, weighted by test examples; nan likewise
    client_loss: float = float("nan")
