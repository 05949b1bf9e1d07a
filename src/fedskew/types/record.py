"""What one round did and cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fedskew.types.plan import Chain


@dataclass(frozen=True)
class Transfer:
    """Bytes of one kind in one direction.

    ``multicast`` is what they cost when one send reaches everybody.
    """

    direction: Literal["down", "up", "d2d"]
    kind: Literal[
        "model",
        "control",
        "loss",
        "histogram",
        "order",
        "latency",
        "gradient",
        "probe",
        "features",
    ]
    bytes: int
    multicast: int


@dataclass(frozen=True)
class Cost:
    """What clients spent in the simulated world: the same figures whenever the run is repeated.

    >>> Cost(1.5, 30.0, 100.0) + Cost(0.5, 10.0, 50.0)
    Cost(seconds=2.0, joules=40.0, sample_passes=150.0)
    """

    # on the simulated clock, never the wall's; nan in records of older versions
    seconds: float = float("nan")
    joules: float = float("nan")  # modelled: computing and sending
    # examples passed over, forward and backward; a forward pass alone is a third
    sample_passes: float = float("nan")

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.seconds + other.seconds,
            self.joules + other.joules,
            self.sample_passes + other.sample_passes,
        )


@dataclass(frozen=True)
class Unscored:
    """Clients that were asked how good a model is and did not say."""

    reasons: Mapping[int, str] = field(default_factory=dict)  # client -> why
    covers: int | None = None  # clients that were tested; None = all that have tests


@dataclass(frozen=True)
class RoundRecord:
    """What one round did and cost, as it is written to disk; round 0 is before training."""

    round: int
    chains: tuple[Chain, ...]
    loss: Mapping[int, float]  # client -> loss it reported, usable replies only
    failures: Mapping[int, str]  # client -> why its reply was not used
    transfers: tuple[Transfer, ...]
    # of the one global model on the central test set; nan = not evaluated, or there are several
    # models
    accuracy: float
    test_loss: float
    seconds: float  # wall time; differs from run to run, everything above does not
    client_seconds: Mapping[int, float]
    cost: Cost = Cost()  # simulated: repeats exactly
    # with run.energy = "measured" or "codecarbon"; differs from run to run
    measured_joules: float = float("nan")
    # of every client's own model on its own test set, weighted by test examples
    client_accuracy: float = float("nan")
    client_loss: float = float("nan")
    # client -> why its model counted for less than it would have, or for nothing
    notes: Mapping[int, str] = field(default_factory=dict)
    # client -> why it did not say how good a model is though it was asked
    unscored: Mapping[int, str] = field(default_factory=dict)
    # clients whose tests the figures of this round cover; None = all that have tests
    covers: int | None = None

    @property
    def simulated_seconds(self) -> float:
        """How long the round takes on the clients' devices; nan = not modelled."""
        return self.cost.seconds

    @property
    def joules(self) -> float:
        """What the clients spend on it: measured where it was, else modelled; nan = neither."""
        return self.cost.joules if math.isnan(self.measured_joules) else self.measured_joules
