"""Bytes of docs/methods.md section 12: 199,210 parameters, 10 of 100 clients a round, 150
rounds.
"""

from __future__ import annotations

import pytest

from fedskew.accounting.traffic import histogram_transfers, model_transfers, total_bytes
from fedskew.types import Chain, Plan

S = 4 * 199_210


def bytes_of(plan, silent=()):
    transfers = model_transfers(plan, set(silent), S)
    return {way: total_bytes(transfers, way) for way in ("down", "up", "d2d")}


def test_fedavg_total():
    plan = Plan(tuple(Chain(0, (i,)) for i in range(10)))
    total = 150 * sum(bytes_of(plan).values())
    assert total / 1e6 == pytest.approx(2390.52, abs=0.005)


def test_histograms_are_forty_bytes_a_client():
    assert total_bytes(histogram_transfers(100, 10), "up") == 100 * 40


@pytest.mark.parametrize(
    ("chains", "relay", "down", "up", "d2d"),
    [
        ([1] * 10, "server", 10, 10, 0),  # FedTrA
        ([10], "server", 10, 10, 0),  # FedSeQ
        ([10], "d2d", 1, 1, 9),  # FedSeQ, device to device
        ([4, 3, 3], "d2d", 3, 3, 7),  # three chains
    ],
)
def test_procedures_of_table_9_1(chains, relay, down, up, d2d):
    ids, plan = iter(range(10)), []
    for length in chains:
        plan.append(Chain(0, tuple(next(ids) for _ in range(length))))
    order = 10 * 8 if relay == "d2d" else 0
    assert bytes_of(Plan(tuple(plan), relay=relay)) == {
        "down": down * S + order,
        "up": up * S,
        "d2d": d2d * S,
    }


def test_multicast_sends_each_model_once():
    two_models = Plan((Chain(0, (1,)), Chain(0, (2,)), Chain(1, (3,))))
    down = model_transfers(two_models, set(), S)[0]
    assert (down.bytes, down.multicast) == (3 * S, 2 * S)


def test_what_is_sent_after_a_silent_first_client_reaches_nobody_else():
    """One transmission begins both chains; the slot's own model goes to client 2 once more."""
    plan = Plan((Chain(0, (1, 2)), Chain(0, (3,))))
    down = model_transfers(plan, {1}, S)[0]
    assert (down.bytes, down.multicast) == (3 * S, 2 * S)


def test_a_silent_client_is_charged_for_what_it_got():
    plan = Plan((Chain(0, (1,)), Chain(0, (2,))))
    assert bytes_of(plan, silent=[2]) == {"down": 2 * S, "up": S, "d2d": 0}


@pytest.mark.parametrize(
    ("broken", "silent", "failed", "down", "d2d", "up"),
    [
        ("skip", {2}, (), 1, 2, 1),  # 1 to 2, who is never heard of; 1 to 3
        ("skip", (), {2}, 1, 3, 1),  # 1 to 2, 2 sends rubbish on to 3, 1 to 3
        ("skip", {3}, (), 1, 2, 1),  # 2 sends its own model in
        ("skip", (), {3}, 1, 2, 2),  # 3 sends rubbish in, then 2 its own model
        ("skip", {1}, (), 2, 1, 1),  # nobody has a model yet: the server sends to 2 as well
        ("drop", {2}, (), 1, 1, 0),  # the chain ends with 2, and counts for nothing
        ("drop", (), {2}, 1, 2, 0),
        ("skip", {1, 2, 3}, (), 3, 0, 0),
    ],
)
def test_a_chain_from_device_to_device_that_breaks(broken, silent, failed, down, d2d, up):
    """Three devices, one after another; every model sent is charged, of use or not."""
    plan = Plan((Chain(0, (1, 2, 3)),), relay="d2d", broken=broken)
    transfers = model_transfers(plan, set(silent), S, failed=set(failed))
    found = {
        way: total_bytes([t for t in transfers if t.kind == "model"], way) // S
        for way in ("down", "d2d", "up")
    }
    assert found == {"down": down, "d2d": d2d, "up": up}
