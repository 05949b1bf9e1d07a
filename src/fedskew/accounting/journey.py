"""The way of the models of a round: who sends one to whom, in what order, when clients fail.

Bytes (:mod:`traffic`), time (:mod:`clock`) and the energy of radios all follow the same journeys,
so that they can never disagree on what was sent.

Through the server every client is sent the model and sends its own back. From device to device the
server begins a chain, each device hands its model on, and the last one with a usable model sends it
in. A device that answers nothing hands nothing on: the last one with a usable model sends it once
more, past it; if there is none yet, the server does. An unusable model is sent on (or in) all the
same and counts for nothing. Where a chain gives up (``plan.broken``), nobody behind the first
client that fails is asked, and nothing is sent in.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fedskew.types import Chain, Plan


class Send(NamedTuple):
    """One model on its way; None is the server."""

    way: Literal["down", "up", "d2d"]
    sender: int | None
    receiver: int | None
    fresh: bool = False  # the slot's own model, not what a client has made of it
    held: bool = False  # the receiver has it already: nothing but extra vectors travels


class Visit(NamedTuple):
    """A model's stay with one client: how it comes, and what the client sends after its turn."""

    client: int
    arrival: Send
    departure: Send | None
    silent: bool


@dataclass(frozen=True)
class Journey:
    """One chain: the clients that were asked, and what is sent in when all of them are through."""

    slot: int
    visits: tuple[Visit, ...]
    ending: Send | None  # only from device to device

    @property
    def sends(self) -> tuple[Send, ...]:
        """Everything that is sent, in order."""
        steps = [send for visit in self.visits for send in (visit.arrival, visit.departure)]
        return tuple(send for send in (*steps, self.ending) if send is not None)


def journeys(
    plan: Plan,
    silent: Collection[int] = (),
    failed: Collection[int] = (),
    holders: Collection[int] = (),
) -> tuple[Journey, ...]:
    """One journey per chain. ``silent`` clients never answer, ``failed`` ones not usably (silent
    ones need not be repeated), ``holders`` hold the slots' models already.

    >>> (journey,) = journeys(Plan((Chain(0, (1, 2, 3)),), relay="d2d"), silent={2})
    >>> [(send.way, send.sender, send.receiver) for send in journey.sends]
    [('down', None, 1), ('d2d', 1, 2), ('d2d', 1, 3), ('up', 3, None)]
    """
    lost = {*silent, *failed}
    return tuple(
        _journey(plan, chain, silent, lost, holders) for chain in plan.chains if chain.clients
    )


def _journey(
    plan: Plan,
    chain: Chain,
    silent: Collection[int],
    lost: Collection[int],
    holders: Collection[int],
) -> Journey:
    visits: list[Visit] = []
    good: int | None = None  # the last client with a usable model
    for place, client in enumerate(chain.clients):
        arrival = _arrival(plan, client, good, holders)
        departure = None if client in silent else _departure(plan, chain, place, lost)
        visits.append(Visit(client, arrival, departure, client in silent))
        good = good if client in lost else client
        if client in lost and plan.broken == "drop":
            return Journey(chain.slot, tuple(visits), None)
    ending = None
    if plan.relay == "d2d" and good is not None:
        ending = Send("up", good, None)
    return Journey(chain.slot, tuple(visits), ending)


def _arrival(plan: Plan, client: int, good: int | None, holders: Collection[int]) -> Send:
    """How a client gets the model it begins with."""
    if good is None:
        return Send("down", None, client, fresh=True, held=client in holders)
    if plan.relay == "d2d":
        return Send("d2d", good, client)
    return Send("down", None, client)


def _departure(plan: Plan, chain: Chain, place: int, lost: Collection[int]) -> Send | None:
    """What a client that answers sends after its turn. From device to device a usable model waits
    for the next arrival, or for the ending.
    """
    client, is_last = chain.clients[place], place + 1 == len(chain.clients)
    if plan.relay == "server":
        return Send("up", client, None)
    if client not in lost:
        return None
    return Send("up", client, None) if is_last else Send("d2d", client, chain.clients[place + 1])
