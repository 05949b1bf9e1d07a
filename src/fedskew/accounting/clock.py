"""The one clock: how long clients compute and models travel, and when each answer is in.

AFLS (paper 003); docs/methods.md 6.5. One discrete-event simulation for every procedure. A model
comes down, the client computes, the model goes up (or from device to device) and the next client of
the chain begins: the journeys of :mod:`journey`, with times. With equal clients it gives the closed
forms: parallel 2 T_m + T_c, through the server N (T_c + 2 T_m), device to device 2 T_m + N T_c + (N
- 1) T_x, and with a shared uplink (M - 1) T_m more for M chains that end together.

The downlink is never shared: one broadcast reaches everybody (docs/methods.md 6.5 charges one T_m).
A shared uplink serves one upload at a time, first come, first served. A client that never answers
holds the server up until it should have answered, or until ``patience_seconds`` after the model was
sent if there is a deadline; it takes no turn on the uplink. A client is late when its
:func:`turn_seconds` (the model comes, the client computes, its answer goes) exceed the deadline.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from fedskew.accounting.journey import Journey, Send, Visit, journeys
from fedskew.types import Plan

Seconds = Mapping[int, float]  # client -> seconds


@dataclass(frozen=True)
class Errand:
    """One thing the clients of a plan are sent to do, in seconds: receive, compute, send."""

    plan: Plan
    compute: Seconds
    down: Seconds  # until the model has come from the server
    up: Seconds  # until its answer has reached the server
    # until its model has reached the next device, for plan.relay = "d2d"
    hop: Seconds = field(default_factory=dict)
    silent: Collection[int] = frozenset()  # never answer
    # a silent client is given up so long after the model was sent; 0 = when it should have answered
    patience_seconds: float = 0.0
    shared_uplink: bool = False
    failed: Collection[int] = frozenset()  # answer, but not usably


def elapsed(errand: Errand) -> float:
    """Seconds from the first send to the last arrival.

    >>> from fedskew.types import Chain
    >>> ones, transfer = dict.fromkeys(range(10), 1.0), dict.fromkeys(range(10), 0.276)
    >>> parallel = Plan(tuple(Chain(0, (i,)) for i in range(10)))
    >>> round(elapsed(Errand(parallel, ones, transfer, transfer)), 3)
    1.552
    >>> round(elapsed(Errand(Plan((Chain(0, tuple(range(10))),)), ones, transfer, transfer)), 2)
    15.52
    """
    played = journeys(errand.plan, errand.silent, errand.failed)
    # (time, chain, step): a chain is ready for its next step. Ties go to the first chain.
    steps = [_steps(errand, journey) for journey in played]
    events = [(0.0, i, 0) for i in range(len(steps))]
    heapq.heapify(events)
    uplink_free = end = 0.0
    while events:
        now, i, number = heapq.heappop(events)
        if number == len(steps[i]):
            end = max(end, now)
            continue
        seconds, uploads = steps[i][number]
        if uploads and errand.shared_uplink:
            now = max(now, uplink_free)
            uplink_free = now + seconds
        heapq.heappush(events, (now + seconds, i, number + 1))
    return end


def turn_seconds(errand: Errand) -> dict[int, float]:
    """client -> seconds of its turn alone: the model comes, it computes, its answer goes."""
    return {c: errand.down[c] + errand.compute[c] + errand.up[c] for c in errand.plan.clients}


def _steps(errand: Errand, journey: Journey) -> list[tuple[float, bool]]:
    """What a chain does one after the other: seconds, and whether they are spent on an upload."""
    steps: list[tuple[float, bool]] = []
    for visit in journey.visits:
        steps += _visit_steps(errand, visit)
    if journey.ending is not None:
        steps.append(_sending(errand, journey.ending))
    return steps


def _visit_steps(errand: Errand, visit: Visit) -> list[tuple[float, bool]]:
    arrival, computing = _sending(errand, visit.arrival), errand.compute[visit.client]
    if visit.silent:
        waited = arrival[0] + computing + errand.up[visit.client]
        return [(errand.patience_seconds or waited, False)]
    departure = [] if visit.departure is None else [_sending(errand, visit.departure)]
    return [arrival, (computing, False), *departure]


def _sending(errand: Errand, send: Send) -> tuple[float, bool]:
    if send.way == "up":
        assert send.sender is not None
        return errand.up[send.sender], True
    if send.way == "d2d":
        assert send.sender is not None
        return errand.hop[send.sender], False
    assert send.receiver is not None
    return errand.down[send.receiver], False
