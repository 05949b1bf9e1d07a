"""What clients run on: latency, bandwidth, signal-to-noise ratio and power, drawn once per client.

The classes are those of HACCS (METHODS 4.3): fast, medium, slow and very slow processors with probabilities .6, .2, .14, .06;
each class has a range of compute delays (a multiplier times 10 s), of bandwidths and, for all, a round-trip time of 20-200 ms.
SNR is uniform in decibels and stored linear (METHODS 4.8: never plug decibels into a root).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedskew.errors import RecipeError
from fedskew.streams import stream
from fedskew.types import Floats, Ints, Population

CLASS_SHARES = (0.6, 0.2, 0.14, 0.06)  # fast, medium, slow, very slow
DELAY_MULTIPLIERS = ((0.0, 0.5), (0.5, 1.0), (1.0, 1.5), (1.5, 2.0))
DELAY_SECONDS = 10.0
BANDWIDTH_BPS = ((75e6, 100e6), (50e6, 75e6), (25e6, 50e6), (1e6, 25e6))
ROUND_TRIP_SECONDS = (0.02, 0.2)
SECONDS_PER_EXAMPLE = 0.001  # where a population does not say


@dataclass(frozen=True)
class Devices:
    """``[devices]``: what the server knows of the clients' means."""

    classes: Literal["none", "haccs"] = "none"  # none = nothing is known of latency and bandwidth
    snr_db: tuple[float, ...] = ()  # (low, high): each client's SNR is uniform in between; empty = not known
    watts: float = 30.0  # while training

    def __post_init__(self) -> None:
        if len(self.snr_db) not in (0, 2) or (len(self.snr_db) == 2 and self.snr_db[0] > self.snr_db[1]):
            raise RecipeError("devices.snr_db", f"{list(self.snr_db)} is not [low, high]", "Example: snr_db = [0, 30]")
        if self.watts <= 0:
            raise RecipeError("devices.watts", f"{self.watts} is not positive", "Example: watts = 30")


def simulated_seconds(population: Population, clients: Ints, passes: Ints) -> Floats:
    """How long each client takes in simulated time: its latency, plus its pace times the examples it passes over.

    >>> simulated_seconds(Population(np.array([5, 6]), latency_seconds=np.array([1.0, 2.0])), np.array([1]), np.array([10]))
    array([2.01])
    """
    pace = np.full(population.size, SECONDS_PER_EXAMPLE)
    pace = pace if population.seconds_per_example is None else population.seconds_per_example
    latency = np.zeros(population.size) if population.latency_seconds is None else population.latency_seconds
    return np.asarray(latency[clients] + pace[clients] * passes, np.float64)


def draw_population(num_examples: Ints, devices: Devices, seed: int) -> Population:
    """The clients' means, the same for every method under one seed.

    >>> means = draw_population(np.array([5, 6]), Devices(classes="haccs", snr_db=(0.0, 30.0)), seed=0)
    >>> bool((means.latency_seconds > 0).all()), bool((means.snr >= 1).all())
    (True, True)
    """
    size = len(num_examples)
    rng = stream(seed, "latency")
    latency = uplink = None
    if devices.classes == "haccs":
        kind = rng.choice(len(CLASS_SHARES), size, p=CLASS_SHARES)
        delay = DELAY_SECONDS * rng.uniform(*np.asarray(DELAY_MULTIPLIERS)[kind].T)
        latency = delay + rng.uniform(*ROUND_TRIP_SECONDS, size)
        uplink = rng.uniform(*np.asarray(BANDWIDTH_BPS)[kind].T)
    snr = None
    if devices.snr_db:
        low, high = devices.snr_db
        snr = 10 ** (stream(seed, "snr").uniform(low, high, size) / 10)
    return Population(num_examples, latency_seconds=latency, uplink_bps=uplink, snr=snr, watts=np.full(size, devices.watts))
