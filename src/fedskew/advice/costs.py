"""What so many rounds of a method cost here, from what they cost in the bank.

The bank counts models, passes over examples and the longest way through a round; here they get the
size of a model, the speed of links and the pace of devices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedskew.accounting.devices import Devices, draw_population
from fedskew.accounting.links import RATE_BPS
from fedskew.advice.bank import Bank
from fedskew.advice.budget import Budget
from fedskew.experiment.figures import Resource
from fedskew.types import Floats, Ints

ROUNDING = 1e-9  # a budget that pays for 9.9999999999 rounds pays for 10


@dataclass(frozen=True)
class Means:
    """What clients and links are like, in the mean."""

    clients: int  # K
    per_round: int  # m
    examples: float  # of a client
    model_bytes: int
    server_seconds: float  # one model to or from the server
    hop_seconds: float  # one model to the next device
    example_seconds: float
    watts: float
    transmit_watts: float


def means_of(sizes: Ints, recipe: Mapping[str, Any], model_bytes: int, seed: int = 0) -> Means:
    """From clients' sizes and the tables [devices] and [run] of a resolved recipe."""
    devices = Devices(**recipe["devices"])
    pace = recipe["faults"]["seconds_per_example"]
    drawn = draw_population(sizes, devices, seed, seconds_per_example=pace)
    server = devices.message_seconds
    if server is None:
        server = _sending(drawn.uplink_bps, drawn.trip_seconds, model_bytes)
    hop = devices.hop_seconds if devices.message_seconds is not None else None
    if hop is None:
        rates = drawn.d2d_bps
        hop = server if rates is None else _sending(rates, drawn.trip_seconds, model_bytes)
    seconds = float(
        np.mean(drawn.seconds_per_example if drawn.seconds_per_example is not None else pace)
    )
    if devices.compute_seconds is not None:
        seconds = devices.compute_seconds / max(
            1.0, float(sizes.mean()) * recipe["local"]["epochs"]
        )
    return Means(
        clients=len(sizes),
        per_round=min(int(recipe["run"]["clients_per_round"]), len(sizes)),
        examples=float(sizes.mean()),
        model_bytes=model_bytes,
        server_seconds=server,
        hop_seconds=hop,
        example_seconds=seconds,
        watts=devices.watts,
        transmit_watts=devices.transmit_watts,
    )


def _sending(rates: Floats | None, trips: Floats | None, size: int) -> float:
    bits = 8 * size / (RATE_BPS if rates is None else rates)
    return float(np.mean(bits + (0.0 if trips is None else trips)))


@dataclass(frozen=True)
class Price:
    """What a method costs before its first round, and in every round, by resource."""

    start: Mapping[Resource, float]
    each: Mapping[Resource, float]

    def after(self, rounds: float) -> dict[Resource, float]:
        """All that was spent after so many rounds."""
        return {what: self.start[what] + rounds * self.each[what] for what in self.start}

    def rounds_for(self, budget: Budget) -> float:
        """How many rounds a budget pays for; below 1: none.

        >>> price = Price({"bytes": 10.0}, {"bytes": 5.0})
        >>> price.rounds_for(Budget("bytes", 100.0)), price.rounds_for(Budget("bytes", 9.0))
        (18.0, 0.0)
        """
        left, each = budget.amount - self.start[budget.resource], self.each[budget.resource]
        if each <= 0:  # nothing is sent, say
            return math.inf if left >= 0 else 0.0
        # costs are means, and how a mean is rounded depends on the processor
        return float(max(0, math.floor(left / each * (1 + ROUNDING))))


def units_of(bank: Bank, weights: Floats, method: str, means: Means) -> dict[str, float]:
    """A method's costs in the bank's units, in the mean over federations with these weights.

    How many train goes with m for most methods and with K for some: whichever varies less over the
    bank.
    """
    place = bank.names.index(method)
    known = ~np.isnan(bank.costs["chosen"][:, place])
    share = np.where(known, weights, 0.0)
    share = share / share.sum() if share.sum() > 0 else known / known.sum()
    column = {name: np.where(known, values[:, place], 0.0) for name, values in bank.costs.items()}
    chosen = column["chosen"]
    by_m, by_k = chosen / bank.per_round, chosen / bank.num_clients
    with_m = _varies(by_m[known]) <= _varies(by_k[known])
    units = {name: float(share @ values) for name, values in column.items()}
    for name in ("down", "up", "d2d", "passes"):
        units[name] = float(share @ (column[name] / np.where(known, by_m, 1.0)))
    units["chosen"] = (
        means.per_round * float(share @ by_m) if with_m else means.clients * float(share @ by_k)
    )
    return units


def _varies(values: Floats) -> float:
    return float(np.std(values)) / max(float(np.mean(values)), 1e-9)


def over_server(units: Mapping[str, float]) -> dict[str, float]:
    """The same method when models go over the server instead of from device to device."""
    return {
        **units,
        "down": units["down"] + units["d2d"],
        "up": units["up"] + units["d2d"],
        "d2d": 0.0,
        "hops": units["hops"] + 2 * units["handed"],
        "handed": 0.0,
    }


def price_of(units: Mapping[str, float], epochs: int, means: Means) -> Price:
    """In bytes, simulated seconds, joules and rounds."""
    turn = means.examples * epochs * means.example_seconds
    start_up, start_down = (units[f"start_{way}"] * means.clients for way in ("up", "down"))
    up, down, d2d = (units[way] * units["chosen"] for way in ("up", "down", "d2d"))
    start: dict[Resource, float] = {
        "bytes": means.model_bytes * (start_up + start_down),
        "time": units["start_hops"] * means.server_seconds,
        "energy": means.watts
        * means.example_seconds
        * means.examples
        * units["start_passes"]
        * means.clients
        + means.transmit_watts * start_up * means.server_seconds,
        "rounds": 0.0,
    }
    each: dict[Resource, float] = {
        "bytes": means.model_bytes * (up + down + d2d),
        "time": units["hops"] * means.server_seconds
        + units["handed"] * means.hop_seconds
        + units["turns"] * turn,
        "energy": means.watts * turn * units["passes"] * units["chosen"]
        + means.transmit_watts * (up * means.server_seconds + d2d * means.hop_seconds),
        "rounds": 1.0,
    }
    return Price(start, each)
