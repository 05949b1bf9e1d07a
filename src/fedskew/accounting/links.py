"""What a turn of computing and a message take at each client, and how fast a radio link is.

docs/methods.md 6.5: T_c,i = delay_i + seconds_per_example_i x passes, T_m,i = trip_i + 8 bytes /
rate_i, the same both ways. Where a population says nothing: 1 ms per example, 10 Mbit/s, no delay,
no trip. A :class:`Tariff` may set them for everybody instead: ``compute_seconds`` is then what an
ordinary turn takes whatever a client holds (a forward pass over the same examples a third of one
epoch of it), ``model_seconds`` what one model takes (two models twice as long, a loss next to
nothing).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from fedskew.errors import RunError
from fedskew.types import Floats, Population

SECONDS_PER_EXAMPLE = 0.001  # one forward and backward pass, where a population does not say
RATE_BPS = 10e6
FORWARD_SHARE = 1 / 3  # of a sample pass: what looking without learning costs (docs/methods.md 9.2)


@dataclass(frozen=True)
class Tariff:
    """How time is charged where the population does not say; None leaves it to the population."""

    compute_seconds: float | None = None  # T_c: one ordinary turn of any client
    model_seconds: float | None = None  # T_m: one model to or from the server
    hop_seconds: float | None = None  # T_x: one model to the next device; None: as to the server
    shared_uplink: bool = False
    # a silent client is given up after this long; 0 = when it should have answered
    patience_seconds: float = 0.0


@dataclass(frozen=True)
class Links:
    """The way between the server, the clients and each other, for models of one size."""

    population: Population
    tariff: Tariff
    model_bytes: int

    def down(
        self, clients: Iterable[int], size: float, *, holders: Collection[int] = ()
    ) -> dict[int, float]:
        """Seconds until each client has ``size`` bytes from the server; 0 for the holders."""
        return {c: 0.0 if c in holders else self._trip(c) + self.sending(c, size) for c in clients}

    def up(self, clients: Iterable[int], size: float) -> dict[int, float]:
        """Seconds until ``size`` bytes of each client have reached the server."""
        return {c: self._trip(c) + self.sending(c, size) for c in clients}

    def hop(self, clients: Iterable[int], size: float) -> dict[int, float]:
        """Seconds until ``size`` bytes of each client have reached the next device."""
        return {c: self._trip(c) + self.sending(c, size, d2d=True) for c in clients}

    def sending(self, client: int, size: float, *, d2d: bool = False) -> float:
        """Seconds a client's radio is busy with ``size`` bytes; the trip is not part of it."""
        tariff, population = self.tariff, self.population
        constant = (
            tariff.hop_seconds if d2d and tariff.hop_seconds is not None else tariff.model_seconds
        )
        if constant is not None:
            return constant * size / self.model_bytes if self.model_bytes else 0.0
        rates = (
            population.d2d_bps if d2d and population.d2d_bps is not None else population.uplink_bps
        )
        return 8 * size / (RATE_BPS if rates is None else float(rates[client]))

    def _trip(self, client: int) -> float:
        """The part of a message's time that does not depend on its size."""
        given = self.population.trip_seconds
        return (
            0.0 if given is None or self.tariff.model_seconds is not None else float(given[client])
        )


def compute_seconds(
    population: Population,
    tariff: Tariff,
    passes: Mapping[int, float],
    ordinary: Mapping[int, float],
    *,
    trains: bool = True,
) -> dict[int, float]:
    """T_c of each client for these sample passes; ``ordinary`` is what a training turn passes over.

    >>> two = Population(np.array([10, 20]))
    >>> compute_seconds(two, Tariff(), {0: 50.0, 1: 100.0}, {0: 50.0, 1: 100.0})
    {0: 0.05, 1: 0.1}
    >>> compute_seconds(two, Tariff(compute_seconds=1.0), {0: 50.0, 1: 25.0}, {0: 50.0, 1: 100.0})
    {0: 1.0, 1: 0.25}
    """
    if tariff.compute_seconds is not None:
        return {
            c: tariff.compute_seconds * p / ordinary[c] if ordinary[c] else 0.0
            for c, p in passes.items()
        }
    paces, delays = population.seconds_per_example, population.delay_seconds
    return {
        c: (SECONDS_PER_EXAMPLE if paces is None else float(paces[c])) * p
        + (0.0 if delays is None or not trains else float(delays[c]))
        for c, p in passes.items()
    }


def shannon_bps(bandwidth_hz: float, snr: ArrayLike) -> Floats:
    """The rate a channel of this width carries at each linear SNR: B log2(1 + SNR).

    >>> shannon_bps(1e6, [1.0, 1023.0]).tolist()
    [1000000.0, 10000000.0]
    """
    linear = np.asarray(snr, np.float64)
    if bandwidth_hz <= 0:
        raise RunError("radio", f"a bandwidth of {bandwidth_hz} Hz", "Give a positive one")
    if not (linear >= 0).all():
        raise RunError(
            "radio",
            "a linear signal-to-noise ratio is negative or not a number",
            "Convert decibels: 10 ** (dB / 10)",
        )
    return np.asarray(bandwidth_hz * np.log2(1 + linear), np.float64)


def check_means(population: Population) -> Population:
    """The population, if its times, rates and powers are possible; an unknown figure may be nan.

    >>> check_means(Population(np.array([5]), uplink_bps=np.array([-1.0])))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedskew.errors.RunError: population.uplink_bps: -1 at client 0 is not positive. Correct ...
    """
    for field in fields(population):
        values = getattr(population, field.name)
        if values is None:
            continue
        if values.shape != (population.size,):
            what = f"has shape {values.shape} for {population.size} clients"
            raise RunError(f"population.{field.name}", what, "Give one number per client")
        wrong = values <= 0 if field.name in ("uplink_bps", "d2d_bps") else values < 0
        if wrong.any():
            client = int(np.flatnonzero(wrong)[0])
            what = f"{values[client]:g} at client {client} is " + (
                "not positive" if "bps" in field.name else "negative"
            )
            raise RunError(f"population.{field.name}", what, "Correct what is known of the clients")
    return population
