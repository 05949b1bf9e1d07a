"""Bytes that cross the network in one round, by direction and kind (METHODS 9.1).

Payload only: 4 bytes a float, 8 an integer counter, never the size of a Python object. The multicast column says what the same
round costs when one transmission of the model reaches every client at once; the two are never mixed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

from fedskew.types import Plan, Transfer

ORDER_BYTES = 8  # one client's place in a device-to-device chain: id and next hop
COUNT_BYTES = 4  # one class count, uint32
LOSS_BYTES = 4


def model_transfers(
    plan: Plan, silent: Collection[int], model_bytes: int, *, holders: Collection[int] = ()
) -> tuple[Transfer, ...]:
    """The models of a plan. ``silent`` clients never answered; ``holders`` hold the slots' models already: no second send.

    >>> from fedskew.types import Chain
    >>> plan = Plan((Chain(0, (1,)), Chain(0, (2,))))
    >>> [(t.direction, t.bytes, t.multicast) for t in model_transfers(plan, {2}, 100)]
    [('down', 200, 100), ('up', 100, 100)]
    """
    if plan.relay == "d2d":
        return _device_to_device(plan, silent, model_bytes, holders)
    begun = [chain for chain in plan.chains if chain.clients and chain.clients[0] not in holders]
    slots = {chain.slot for chain in begun}
    relayed = sum(max(0, len(chain.clients) - 1) for chain in plan.chains)  # each sent to one client, never to all
    answered = sum(client not in silent for client in plan.clients)
    if plan.models_down != 1:  # not the slot's own model but that many shared ones: one send of each reaches everybody
        size = plan.models_down * model_bytes
        down = Transfer("down", "model", len(begun) * size, size if begun else 0)
    else:
        down = Transfer("down", "model", (len(begun) + relayed) * model_bytes, (len(slots) + relayed) * model_bytes)
    up = answered * plan.models_up * model_bytes
    return _nonzero([down, Transfer("up", "model", up, up)])


def _device_to_device(plan: Plan, silent: Collection[int], model_bytes: int, holders: Collection[int]) -> tuple[Transfer, ...]:
    chains = [chain for chain in plan.chains if chain.clients]
    begun = [chain for chain in chains if chain.clients[0] not in holders]
    slots = {chain.slot for chain in begun}
    ends = sum(any(client not in silent for client in chain.clients) for chain in chains)
    hops = sum(len(chain.clients) - 1 for chain in chains)
    order = len(plan.clients) * ORDER_BYTES
    return _nonzero(
        [
            Transfer("down", "model", len(begun) * model_bytes, len(slots) * model_bytes),
            Transfer("down", "order", order, order),
            Transfer("d2d", "model", hops * model_bytes, hops * model_bytes),
            Transfer("up", "model", ends * model_bytes, ends * model_bytes),
        ]
    )


def histogram_transfers(num_clients: int, num_classes: int) -> tuple[Transfer, ...]:
    """Every client discloses its label counts once."""
    size = num_clients * num_classes * COUNT_BYTES
    return (Transfer("up", "histogram", size, size),)


def probe_transfers(asked: int, uploads: int, model_bytes: int, *, upload_bytes: int = 0) -> tuple[Transfer, ...]:
    """Models that go out for a probe or a throw-away round; back comes a model, or a gradient of ``upload_bytes``."""
    down = Transfer("down", "probe", asked * model_bytes, model_bytes if asked else 0)
    up = uploads * (upload_bytes or model_bytes)
    return _nonzero([down, Transfer("up", "gradient" if upload_bytes else "probe", up, up)])


def loss_transfers(asked: int, model_bytes: int, slots: int = 1) -> tuple[Transfer, ...]:
    """The present model goes out to be evaluated, one loss comes back from each client."""
    losses = asked * LOSS_BYTES
    down = Transfer("down", "model", asked * model_bytes, min(asked, slots) * model_bytes)
    return _nonzero([down, Transfer("up", "loss", losses, losses)])


def slot_transfers(asked: int, slots: int, model_bytes: int) -> tuple[Transfer, ...]:
    """The models of several slots go out to be compared; one number per slot comes back from each client.

    >>> [(t.direction, t.kind, t.bytes, t.multicast) for t in slot_transfers(3, 2, 100)]
    [('down', 'model', 600, 200), ('up', 'loss', 24, 24)]
    """
    numbers = asked * slots * LOSS_BYTES
    down = Transfer("down", "model", asked * slots * model_bytes, slots * model_bytes if asked else 0)
    return _nonzero([down, Transfer("up", "loss", numbers, numbers)])


def report_transfers(kinds: Iterable[str], clients: int) -> tuple[Transfer, ...]:
    """One number of each kind from each client, sent along with its model. An SNR is a piece of control information."""
    size = clients * LOSS_BYTES
    names: dict[str, Literal["loss", "latency", "control"]] = {"loss": "loss", "latency": "latency", "snr": "control"}
    return _nonzero(Transfer("up", names[kind], size, size) for kind in kinds)


def total_bytes(transfers: Iterable[Transfer], direction: str) -> int:
    """Unicast bytes of all kinds in one direction."""
    return sum(t.bytes for t in transfers if t.direction == direction)


def _nonzero(transfers: Iterable[Transfer]) -> tuple[Transfer, ...]:
    return tuple(t for t in transfers if t.bytes)
