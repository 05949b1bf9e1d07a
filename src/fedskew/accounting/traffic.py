"""Bytes that cross the network in one round, by direction and kind (docs/methods.md 9.1).

Payload only: 4 bytes a float, 8 an integer counter, never the size of a Python object. The
multicast column says what the same round costs when one transmission of the model reaches every
client at once; the two are never mixed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Literal

from fedskew.accounting.journey import Journey, journeys
from fedskew.types import Plan, Transfer

ORDER_BYTES = 8  # one client's place in a device-to-device chain: id and next hop
COUNT_BYTES = 4  # one class count, uint32
LOSS_BYTES = 4
FLOAT_BYTES = 4
SHARE_BYTES = 4


def model_transfers(
    plan: Plan,
    silent: Collection[int],
    model_bytes: int,
    *,
    failed: Collection[int] = (),
    holders: Collection[int] = (),
    extra_models: int = 0,
) -> tuple[Transfer, ...]:
    """The models of a plan, and the ``extra_models`` vectors of a model's size that go with each of
    them, both ways (to ``holders``, who need no model, alone).

    >>> from fedskew.types import Chain
    >>> plan = Plan((Chain(0, (1,)), Chain(0, (2,))))
    >>> [(t.direction, t.bytes, t.multicast) for t in model_transfers(plan, {2}, 100)]
    [('down', 200, 100), ('up', 100, 100)]
    """
    played = journeys(plan, silent, failed, holders)
    sends = [send for journey in played for send in journey.sends]
    models = {
        "down": _down(plan, played, model_bytes, with_held=False),
        "d2d": _plain("d2d", sum(send.way == "d2d" for send in sends) * model_bytes),
        "up": _plain("up", sum(s.way == "up" for s in sends) * plan.models_up * model_bytes),
    }
    order = len(plan.clients) * ORDER_BYTES if plan.relay == "d2d" else 0
    told = Transfer("down", "order", order, order)
    extra = [
        replace(sent, kind="control", bytes=extra_models * sent.bytes,
                multicast=extra_models * sent.multicast)
        for sent in (_down(plan, played, model_bytes, with_held=True), models["d2d"], models["up"])
    ]  # fmt: skip
    return _nonzero([models["down"], told, models["d2d"], models["up"], *extra])


def _plain(way: Literal["up", "d2d"], size: int) -> Transfer:
    """Sent by each for itself."""
    return Transfer(way, "model", size, size)


def _down(plan: Plan, played: Sequence[Journey], model_bytes: int, *, with_held: bool) -> Transfer:
    """What the server sends. One transmission begins all chains on a slot; what it sends in the
    middle of a chain goes to one client, never to all.
    """
    sends = [
        (journey.slot, place, visit.arrival)
        for journey in played
        for place, visit in enumerate(journey.visits)
        if visit.arrival.way == "down" and (with_held or not visit.arrival.held)
    ]
    if plan.models_down != 1:  # that many shared models: one send of each reaches everybody
        begun = sum(place == 0 for _, place, _ in sends)
        size = plan.models_down * model_bytes
        return Transfer("down", "model", begun * size, size if begun else 0)
    shared = {slot for slot, place, _ in sends if place == 0}
    alone = sum(place > 0 for _, place, _ in sends)
    return Transfer("down", "model", len(sends) * model_bytes, (len(shared) + alone) * model_bytes)


def histogram_transfers(num_clients: int, num_classes: int) -> tuple[Transfer, ...]:
    """Every client discloses its label counts once."""
    size = num_clients * num_classes * COUNT_BYTES
    return (Transfer("up", "histogram", size, size),)


def probe_transfers(
    asked: int, uploads: int, model_bytes: int, *, upload_bytes: int = 0, slots: int = 1
) -> tuple[Transfer, ...]:
    """Models of so many slots that go out for a probe or a throw-away round; back comes a model, or
    a gradient of ``upload_bytes``.
    """
    down = Transfer("down", "probe", asked * model_bytes, min(asked, slots) * model_bytes)
    up = uploads * (upload_bytes or model_bytes)
    return _nonzero([down, Transfer("up", "gradient" if upload_bytes else "probe", up, up)])


def loss_transfers(asked: int, model_bytes: int, slots: int = 1) -> tuple[Transfer, ...]:
    """The present models of so many slots go out to be evaluated, one loss comes back from each
    client.
    """
    losses = asked * LOSS_BYTES
    down = Transfer("down", "model", asked * model_bytes, min(asked, slots) * model_bytes)
    return _nonzero([down, Transfer("up", "loss", losses, losses)])


def slot_transfers(asked: int, slots: int, model_bytes: int) -> tuple[Transfer, ...]:
    """The models of several slots go out to be compared; each client answers a number per slot.

    >>> [(t.direction, t.kind, t.bytes, t.multicast) for t in slot_transfers(3, 2, 100)]
    [('down', 'model', 600, 200), ('up', 'loss', 24, 24)]
    """
    numbers = asked * slots * LOSS_BYTES
    down = Transfer(
        "down", "model", asked * slots * model_bytes, slots * model_bytes if asked else 0
    )
    return _nonzero([down, Transfer("up", "loss", numbers, numbers)])


def feature_transfers(asked: int, model_bytes: int, size: int) -> tuple[Transfer, ...]:
    """The last model goes out, what clients tell of their features comes back."""
    down = Transfer("down", "model", asked * model_bytes, model_bytes if asked else 0)
    return _nonzero([down, Transfer("up", "features", asked * size, asked * size)])


def delivery_transfers(asked: int, size: int) -> tuple[Transfer, ...]:
    """Parts of a model that are sent once and never come back."""
    return _nonzero([Transfer("down", "model", asked * size, size if asked else 0)])


def report_transfers(kinds: Iterable[str], clients: int) -> tuple[Transfer, ...]:
    """One number of each kind from each client, sent along with its model.

    SNRs and steps are control information.
    """
    size = clients * LOSS_BYTES
    names: dict[str, Literal["loss", "latency", "control"]] = {"loss": "loss", "latency": "latency"}
    return _nonzero(Transfer("up", names.get(kind, "control"), size, size) for kind in kinds)


def share_transfers(clients: int, num_classes: int) -> tuple[Transfer, ...]:
    """Everybody's label shares, told to so many clients; one transmission reaches them all.

    >>> share_transfers(3, 10)[0].bytes, share_transfers(3, 0)
    (120, ())
    """
    size = num_classes * SHARE_BYTES
    return _nonzero([Transfer("down", "control", clients * size, size)])


def total_bytes(transfers: Iterable[Transfer], direction: str) -> int:
    """Unicast bytes of all kinds in one direction."""
    return sum(t.bytes for t in transfers if t.direction == direction)


def _nonzero(transfers: Iterable[Transfer]) -> tuple[Transfer, ...]:
    return tuple(t for t in transfers if t.bytes)
