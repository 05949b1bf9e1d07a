"""What a clock model draws for each client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedskew.types import Floats
from fedskew.types.arrays import freeze


@dataclass(frozen=True)
class DeviceTimes:
    """One row per client."""

    delay_seconds: Floats  # (K,) whenever it trains, whatever it trains on
    trip_seconds: Floats  # (K,) one message, one way, whatever its size
    uplink_bps: Floats  # (K,) to and from the server

    def __post_init__(self) -> None:
        freeze(self, delay_seconds=np.float64, trip_seconds=np.float64, uplink_bps=np.float64)
