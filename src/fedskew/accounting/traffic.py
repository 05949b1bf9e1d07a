"""Bytes that cross the network in one round, by direction and kind (METHODS 9.1).

Payload only: 4 bytes a float, 8 an integer counter, never the size of a Python object. The multicast column says what the same
round costs when one transmission of the model reaches every client at once; the two are never mixed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fedskew.types import Plan, Transfer

ORDER_BYTES = 8  # one client's place in a device-to-device chain: id and next hop
COUNT_BYTES = 4  # one class count, uint32
LOSS_BYTES = 4


def model_transfers(plan: Plan, silent: Collection[int], model_bytes: int) -> tuple[Transfer, ...]:
    """The models of a plan. ``silent`` clients were sent a model and never answered.

    >>> from fedskew.types import Chain
    >>> plan = Plan((Chain(0, (1,)), Chain(0, (2,))))
    >>> [(t.direction, t.bytes, t.multicast) for t in model_transfers(plan, {2}, 100)]
    [('down', 200, 100), ('up', 100, 100)]
    """
    if plan.relay == "d2d":
        return _device_to_device(plan, silent, model_bytes)
    slots = {chain.slot for chain in plan.chains if chain.clients}
    relayed = sum(max(0, len(chain.clients) - 1) for chain in plan.chains)  # each sent to one client, never to all
    answered = sum(client not in silent for client in plan.clients)
    down = Transfer("down", "model", len(plan.clients) * model_bytes, (len(slots) + relayed) * model_bytes)
    return _nonzero([down, Transfer("up", "model", answered * model_bytes, answered * model_bytes)])


def _device_to_device(plan: Plan, silent: Collection[int], model_bytes: int) -> tuple[Transfer, ...]:
    chains = [chain for chain in plan.chains if chain.clients]
    slots = {chain.slot for chain in chains}
    ends = sum(any(client not in silent for client in chain.clients) for chain in chains)
    hops = sum(len(chain.clients) - 1 for chain in chains)
    order = len(plan.clients) * ORDER_BYTES
    return _nonzero(
        [
            Transfer("down", "model", len(chains) * model_bytes, len(slots) * model_bytes),
            Transfer("down", "order", order, order),
            Transfer("d2d", "model", hops * model_bytes, hops * model_bytes),
            Transfer("up", "model", ends * model_bytes, ends * model_bytes),
        ]
    )


def histogram_transfers(num_clients: int, num_classes: int) -> tuple[Transfer, ...]:
    """Every client discloses its label counts once."""
    size = num_clients * num_classes * COUNT_BYTES
    return (Transfer("up", "histogram", size, size),)


def probe_transfers(asked: int, uploads: int, model_bytes: int) -> tuple[Transfer, ...]:
    """Everybody gets the model once for a probe, and sends one back."""
    down = Transfer("down", "probe", asked * model_bytes, model_bytes if asked else 0)
    return _nonzero([down, Transfer("up", "probe", uploads * model_bytes, uploads * model_bytes)])


def total_bytes(transfers: Iterable[Transfer], direction: str) -> int:
    """Unicast bytes of all kinds in one direction."""
    return sum(t.bytes for t in transfers if t.direction == direction)


def _nonzero(transfers: Iterable[Transfer]) -> tuple[Transfer, ...]:
    return tuple(t for t in transfers if t.bytes)
