"""Fast, medium, slow and very slow devices with probabilities .6, .2, .14 and .06 (HACCS).

Wolfrath et al.: "HACCS: Heterogeneity-Aware Clustered Client Selection for Accelerated Federated
Learning", IPDPS 2022, section V; docs/methods.md 4.3. Each class has a range of compute delays (a
multiplier times 10 s) and of bandwidths; a round trip takes 20 to 200 ms for all.
"""

from __future__ import annotations

import numpy as np

from fedskew.accounting.device_classes.times import DeviceTimes

CLASS_SHARES = (0.6, 0.2, 0.14, 0.06)  # fast, medium, slow, very slow
DELAY_MULTIPLIERS = ((0.0, 0.5), (0.5, 1.0), (1.0, 1.5), (1.5, 2.0))
DELAY_SECONDS = 10.0
BANDWIDTH_BPS = ((75e6, 100e6), (50e6, 75e6), (25e6, 50e6), (1e6, 25e6))
ROUND_TRIP_SECONDS = (0.02, 0.2)


def haccs(rng: np.random.Generator, size: int) -> DeviceTimes:
    """Delays of up to 20 s, rates of 1 to 100 Mbit/s."""
    kind = rng.choice(len(CLASS_SHARES), size, p=CLASS_SHARES)
    delay = DELAY_SECONDS * rng.uniform(*np.asarray(DELAY_MULTIPLIERS)[kind].T)
    trip = rng.uniform(*ROUND_TRIP_SECONDS, size) / 2
    uplink = rng.uniform(*np.asarray(BANDWIDTH_BPS)[kind].T)
    return DeviceTimes(delay, trip, uplink)
