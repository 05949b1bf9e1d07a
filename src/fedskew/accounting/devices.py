"""What clients run on: pace, latency, bandwidth, SNR and power, drawn once per client.

The classes are those of HACCS (docs/methods.md 4.3): fast, medium, slow and very slow processors
with probabilities .6, .2, .14, .06; each class has a range of compute delays (a multiplier times 10
s), of bandwidths and, for all, a round-trip time of 20-200 ms. SNR is uniform in decibels and
stored linear (docs/methods.md 4.8: never plug decibels into a root).

Without settings every client passes over an example in 1 ms, has a link of its own of 10 Mbit/s
both ways, sends at 1 W and computes at 30 W. AFLS's calibrated times (docs/methods.md 6.5) are
``compute_seconds = 1.0`` and ``message_seconds = 0.276``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedskew.accounting.device_classes import DEVICE_CLASSES
from fedskew.accounting.links import SECONDS_PER_EXAMPLE, Tariff, shannon_bps
from fedskew.errors import RecipeError, did_you_mean
from fedskew.streams import stream
from fedskew.types import Floats, Ints, Population


@dataclass(frozen=True)
class Devices:
    """``[devices]``: what is known of the clients' means, and how time and energy are charged."""

    # a clock model of device_classes/; none = nothing is known of latency and bandwidth
    classes: str = "none"
    # (low, high): each client's SNR is uniform in between; empty = not known
    snr_db: tuple[float, ...] = ()
    # with snr_db: rates are Shannon's, B log2(1 + SNR), whatever the class says
    bandwidth_hz: float | None = None
    # everybody's rate to and from the server; None = Shannon's, the class's, or 10 Mbit/s
    uplink_bps: float | None = None
    uplink: Literal["dedicated", "shared"] = "dedicated"  # shared: one upload at a time (TDMA)
    d2d_bps: float | None = None  # from device to device; None = as to the server
    # forward and backward; None = flops, or faults.seconds_per_example (1 ms)
    seconds_per_example: float | None = None
    # with flops_per_second: another way to say seconds_per_example
    flops_per_example: float | None = None
    flops_per_second: float | None = None
    # each client's pace is times a factor, log-uniform from 1 / spread to spread
    speed_spread: float = 1.0
    compute_seconds: float | None = None  # T_c: a turn takes this long whatever a client holds
    # T_m: a model takes this long to or from the server, whatever its size
    message_seconds: float | None = None
    hop_seconds: float | None = None  # T_x: and this long from device to device; None = T_m
    watts: float = 30.0  # while training
    watts_spread: float = 1.0  # as speed_spread
    transmit_watts: float = 1.0  # while sending; 0 leaves the radio out

    def __post_init__(self) -> None:
        if self.classes not in ("none", *DEVICE_CLASSES):
            what = f"unknown clock model '{self.classes}'"
            remedy = did_you_mean(self.classes, ["none", *DEVICE_CLASSES])
            raise RecipeError("devices.classes", what, remedy)
        if len(self.snr_db) not in (0, 2) or (
            len(self.snr_db) == 2 and self.snr_db[0] > self.snr_db[1]
        ):
            raise RecipeError(
                "devices.snr_db",
                f"{list(self.snr_db)} is not [low, high]",
                "Example: snr_db = [0, 30]",
            )
        for name, example in POSITIVE.items():
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise RecipeError(
                    f"devices.{name}", f"{value} is not positive", f"Example: {name} = {example}"
                )
        for name in ("compute_seconds", "message_seconds", "hop_seconds", "transmit_watts"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise RecipeError(f"devices.{name}", f"{value} is out of range", "Give 0 or more")
        for name in ("speed_spread", "watts_spread"):
            if not 1 <= getattr(self, name) < float("inf"):
                raise RecipeError(
                    f"devices.{name}",
                    f"{getattr(self, name)} is less than 1",
                    "1 = all alike; example: 4",
                )
        self._check_together()

    def _check_together(self) -> None:
        """Options that only make sense together, or not together."""
        if self.bandwidth_hz is not None and not self.snr_db:
            raise RecipeError(
                "devices.bandwidth_hz",
                "gives no rate without an SNR",
                "Set devices.snr_db = [0, 30]",
            )
        if self.bandwidth_hz is not None and self.uplink_bps is not None:
            raise RecipeError(
                "devices.uplink_bps", "given together with bandwidth_hz", "Give one of them"
            )
        if (self.flops_per_example is None) != (self.flops_per_second is None):
            raise RecipeError(
                "devices",
                "needs both flops_per_example and flops_per_second",
                "Give both or neither",
            )
        if self.flops_per_example is not None and self.seconds_per_example is not None:
            raise RecipeError(
                "devices.seconds_per_example", "given together with flops", "Give one of them"
            )
        if self.hop_seconds is not None and self.message_seconds is None:
            raise RecipeError(
                "devices.hop_seconds", "given without message_seconds", "Give both, or d2d_bps"
            )

    def tariff(self, patience_seconds: float = 0.0) -> Tariff:
        """What is the same for every client."""
        return Tariff(
            compute_seconds=self.compute_seconds,
            model_seconds=self.message_seconds,
            hop_seconds=self.hop_seconds,
            shared_uplink=self.uplink == "shared",
            patience_seconds=patience_seconds,
        )


POSITIVE = {  # option -> an example of it
    "watts": "30",
    "bandwidth_hz": "1e6",
    "uplink_bps": "10e6",
    "d2d_bps": "50e6",
    "seconds_per_example": "0.001",
    "flops_per_example": "1.2e6",
    "flops_per_second": "1e9",
}


def draw_population(
    num_examples: Ints,
    devices: Devices,
    seed: int,
    *,
    seconds_per_example: float = SECONDS_PER_EXAMPLE,
) -> Population:
    """The clients' means, the same for every method under one seed.

    ``seconds_per_example`` is the pace where devices do not say theirs.

    >>> devices = Devices(classes="haccs", snr_db=(0.0, 30.0))
    >>> means = draw_population(np.array([5, 6]), devices, seed=0)
    >>> bool((means.latency_seconds > 0).all()), bool((means.snr >= 1).all())
    (True, True)
    """
    size = len(num_examples)
    rng = stream(seed, "latency")
    delay = trip = uplink = snr = None
    if devices.classes != "none":
        drawn = DEVICE_CLASSES[devices.classes](rng, size)
        delay, trip, uplink = drawn.delay_seconds, drawn.trip_seconds, drawn.uplink_bps
    if devices.snr_db:
        low, high = devices.snr_db
        snr = 10 ** (stream(seed, "snr").uniform(low, high, size) / 10)
    if devices.bandwidth_hz is not None and snr is not None:
        uplink = shannon_bps(devices.bandwidth_hz, snr)
    if devices.uplink_bps is not None:
        uplink = np.full(size, devices.uplink_bps)
    return Population(
        num_examples,
        seconds_per_example=_pace(devices, seconds_per_example)
        * _spread(seed, "speed", devices.speed_spread, size),
        latency_seconds=None if delay is None or trip is None else delay + 2 * trip,
        uplink_bps=uplink,
        snr=snr,
        watts=devices.watts * _spread(seed, "watts", devices.watts_spread, size),
        delay_seconds=delay,
        trip_seconds=trip,
        d2d_bps=None if devices.d2d_bps is None else np.full(size, devices.d2d_bps),
        transmit_watts=np.full(size, devices.transmit_watts),
    )


def _pace(devices: Devices, otherwise: float) -> float:
    """Seconds of one pass over one example on an ordinary client."""
    if devices.flops_per_example is not None and devices.flops_per_second is not None:
        return devices.flops_per_example / devices.flops_per_second
    return otherwise if devices.seconds_per_example is None else devices.seconds_per_example


def _spread(seed: int, purpose: str, spread: float, size: int) -> Floats:
    """(K,) factors, log-uniform from 1 / spread to spread."""
    return np.asarray(spread ** stream(seed, purpose).uniform(-1, 1, size), np.float64)
