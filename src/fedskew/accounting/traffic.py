"""Bytes that cross the network in one round, by direction and kind (METHODS 9.1).

Payload only: 4 bytes a float, 8 an integer counter, never the size of a Python object. The
multicast column says what the same round costs when one transmission of the model reaches every
client at once; the two are never mixed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from fedskew.types import Chain, Plan, Transfer

ORDER_BYTES = 8  # one client's place in a device-to-device chain: id and next hop
COUNT_BYTES = 4  # one class count, uint32
LOSS_BYTES = 4


def model_transfers(
    plan: Plan,
    silent: Collection[int],
    model_bytes: int,
    *,
    failed: Collection[int] = (),
    holders: Collection[int] = (),
) -> tuple[Transfer, ...]:
    """The models of a plan. ``silent`` clients never answered, ``failed`` ones not usably (silent
    ones need not be repeated); ``holders`` hold the slots' models already: no second send.

    >>> from fedskew.types import Chain
    >>> plan = Plan((Chain(0, (1,)), Chain(0, (2,))))
    >>> [(t.direction, t.bytes, t.multicast) for t in model_transfers(plan, {2}, 100)]
    [('down', 200, 100), ('up', 100, 100)]
    """
    lost = {*silent, *failed}
    walks = [
        _walk(chain, lost, give_up=plan.broken == "drop") for chain in plan.chains if chain.clients
    ]
    # one transmission begins all chains on a slot
    shared = {walk.slot for walk in walks if walk.asked[0] not in holders}
    begun = sum(walk.asked[0] not in holders for walk in walks)
    # nobody before them had answered
    again = sum(client not in holders for walk in walks for client in walk.fresh[1:])
    if plan.relay == "d2d":
        return _device_to_device(
            plan, walks, silent, lost, model_bytes, (begun + again, len(shared) + again)
        )
    # each sent to one client, never to all
    relayed = sum(len(walk.asked) - len(walk.fresh) for walk in walks)
    answered = sum(client not in silent for walk in walks for client in walk.asked)
    down = Transfer(
        "down",
        "model",
        (begun + again + relayed) * model_bytes,
        (len(shared) + again + relayed) * model_bytes,
    )
    # not the slot's own model but that many shared ones: one send of each reaches everybody
    if plan.models_down != 1:
        size = plan.models_down * model_bytes
        down = Transfer("down", "model", begun * size, size if begun else 0)
    up = answered * plan.models_up * model_bytes
    return _nonzero([down, Transfer("up", "model", up, up)])


@dataclass(frozen=True)
class _Walk:
    """How far a chain came."""

    slot: int
    asked: tuple[int, ...]
    # those of them that began with the slot's own model, as nobody before them had answered usably
    fresh: tuple[int, ...]
    ended: bool  # there is an end to send to the server


def _walk(chain: Chain, lost: Collection[int], *, give_up: bool) -> _Walk:
    """Follow a chain. Where it gives up, nobody behind the first client that fails is asked."""
    bad = next(
        (place for place, client in enumerate(chain.clients) if client in lost), len(chain.clients)
    )
    asked = chain.clients[: bad + 1] if give_up else chain.clients
    good = next((place for place, client in enumerate(asked) if client not in lost), len(asked) - 1)
    broke = give_up and bad < len(chain.clients)
    return _Walk(
        chain.slot,
        asked,
        asked[: good + 1],
        not broke and any(client not in lost for client in asked),
    )


def _device_to_device(
    plan: Plan,
    walks: list[_Walk],
    silent: Collection[int],
    lost: Collection[int],
    model_bytes: int,
    down: tuple[int, int],
) -> tuple[Transfer, ...]:
    """The server begins a chain, devices hand the model on, the last one that has a usable model
    sends it in.

    A device that answers nothing hands nothing on: the last one with a usable model sends it once
    more, past it; if there is none yet, the server does. What an unusable model cost to send, on to
    the next or in to the server, is charged too.
    """
    last = {chain.clients[-1] for chain in plan.chains if chain.clients}
    useless = [
        client for walk in walks for client in walk.asked if client in lost and client not in silent
    ]
    hops = sum(len(walk.asked) - len(walk.fresh) for walk in walks) + sum(
        client not in last for client in useless
    )
    ends = sum(walk.ended for walk in walks) + sum(client in last for client in useless)
    order = len(plan.clients) * ORDER_BYTES
    return _nonzero(
        [
            Transfer("down", "model", down[0] * model_bytes, down[1] * model_bytes),
            Transfer("down", "order", order, order),
            Transfer("d2d", "model", hops * model_bytes, hops * model_bytes),
            Transfer("up", "model", ends * model_bytes, ends * model_bytes),
        ]
    )


def histogram_transfers(num_clients: int, num_classes: int) -> tuple[Transfer, ...]:
    """Every client discloses its label counts once."""
    size = num_clients * num_classes * COUNT_BYTES
    return (Transfer("up", "histogram", size, size),)


def probe_transfers(
    asked: int, uploads: int, model_bytes: int, *, upload_bytes: int = 0
) -> tuple[Transfer, ...]:
    """Models that go out for a probe or a throw-away round; back comes a model, or a gradient of
    ``upload_bytes``.
    """
    down = Transfer("down", "probe", asked * model_bytes, model_bytes if asked else 0)
    up = uploads * (upload_bytes or model_bytes)
    return _nonzero([down, Transfer("up", "gradient" if upload_bytes else "probe", up, up)])


def loss_transfers(asked: int, model_bytes: int, slots: int = 1) -> tuple[Transfer, ...]:
    """The present model goes out to be evaluated, one loss comes back from each client."""
    losses = asked * LOSS_BYTES
    down = Transfer("down", "model", asked * model_bytes, min(asked, slots) * model_bytes)
    return _nonzero([down, Transfer("up", "loss", losses, losses)])


def slot_transfers(asked: int, slots: int, model_bytes: int) -> tuple[Transfer, ...]:
    """The models of several slots go out to be compared; one number per slot comes back from each
    client.

    >>> [(t.direction, t.kind, t.bytes, t.multicast) for t in slot_transfers(3, 2, 100)]
    [('down', 'model', 600, 200), ('up', 'loss', 24, 24)]
    """
    numbers = asked * slots * LOSS_BYTES
    down = Transfer(
        "down", "model", asked * slots * model_bytes, slots * model_bytes if asked else 0
    )
    return _nonzero([down, Transfer("up", "loss", numbers, numbers)])


def report_transfers(kinds: Iterable[str], clients: int) -> tuple[Transfer, ...]:
    """One number of each kind from each client, sent along with its model. SNRs and steps are
    control information.
    """
    size = clients * LOSS_BYTES
    names: dict[str, Literal["loss", "latency", "control"]] = {"loss": "loss", "latency": "latency"}
    return _nonzero(Transfer("up", names.get(kind, "control"), size, size) for kind in kinds)


def total_bytes(transfers: Iterable[Transfer], direction: str) -> int:
    """Unicast bytes of all kinds in one direction."""
    return sum(t.bytes for t in transfers if t.direction == direction)


def _nonzero(transfers: Iterable[Transfer]) -> tuple[Transfer, ...]:
    return tuple(t for t in transfers if t.bytes)
