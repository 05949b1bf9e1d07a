"""How long a round takes: clients train, models travel, and whatever can happen at once does.

AFLS (paper 003); METHODS 6.5. One discrete-event simulation for every procedure. A model comes
down, the client computes, the model goes up (or from device to device) and the next client of the
chain begins. With equal clients it gives the closed forms: parallel 2 T_m + T_c, through the server
N (T_c + 2 T_m), device to device 2 T_m + N T_c + (N - 1) T_x, and with a shared uplink (M - 1) T_m
more for M chains that end together.

The downlink is never shared: one broadcast reaches everybody (METHODS 6.5 charges one T_m). A
shared uplink serves one upload at a time, first come, first served. A client that never answers
holds the server up for as long as its turn and its upload would have taken, or for
``patience_seconds`` if there is a deadline; it takes no turn on the uplink.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from fedskew.types import Plan

Seconds = Mapping[int, float]  # client -> seconds


@dataclass(frozen=True)
class Errand:
    """One thing the clients of a plan are sent to do, in seconds: receive, compute, send."""

    plan: Plan
    compute: Seconds
    down: Seconds  # until the model has come from the server; 0 for a client that holds it
    up: Seconds  # until its answer has reached the server
    # until its model has reached the next device, for plan.relay = "d2d"
    hop: Seconds = field(default_factory=dict)
    silent: Collection[int] = frozenset()  # never answer
    shared_uplink: bool = False
    # after that long a silent client is given up; 0 = when it should have answered
    patience_seconds: float = 0.0


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
    now, uplink_free = 0.0, 0.0
    chains = [chain.clients for chain in errand.plan.chains]
    # (time, chain, place in the chain, trained): a client has its model, or is through with it.
    # Ties go to the first chain.
    events = [(errand.down[clients[0]], i, 0, False) for i, clients in enumerate(chains) if clients]
    heapq.heapify(events)
    end = 0.0
    while events:
        now, i, place, trained = heapq.heappop(events)
        client = chains[i][place]
        if not trained:
            heapq.heappush(events, (now + _turn(errand, client), i, place, True))
            continue
        if client not in errand.silent and _uploads(errand, chains[i], place):
            start = max(now, uplink_free) if errand.shared_uplink else now
            now = uplink_free = start + errand.up[client]
        end = max(end, now)
        if place + 1 < len(chains[i]):
            heapq.heappush(
                events, (now + _passing_on(errand, chains[i], place), i, place + 1, False)
            )
    return end


def _turn(errand: Errand, client: int) -> float:
    """How long the model stays with a client; with one that never answers, how long it is waited
    for.
    """
    if client not in errand.silent:
        return errand.compute[client]
    return errand.patience_seconds or errand.compute[client] + errand.up[client]


def _uploads(errand: Errand, clients: tuple[int, ...], place: int) -> bool:
    """Through the server everyone sends its model up; from device to device only the last that
    answers.
    """
    return errand.plan.relay == "server" or all(
        client in errand.silent for client in clients[place + 1 :]
    )


def _passing_on(errand: Errand, clients: tuple[int, ...], place: int) -> float:
    """Until the next client has the model: over from the last device that answered, or down from
    the server.
    """
    answered = [client for client in clients[: place + 1] if client not in errand.silent]
    if errand.plan.relay == "server" or not answered:
        return errand.down[clients[place + 1]]
    return errand.hop[answered[-1]]
