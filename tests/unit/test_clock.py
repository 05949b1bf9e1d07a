"""Simulated time: the closed forms of docs/methods.md 6.5, a slow independent simulation, and what
happens when clients fall silent.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedskew.accounting.clock import Errand, elapsed
from fedskew.accounting.links import Links, Tariff, check_means, compute_seconds, shannon_bps
from fedskew.errors import RunError
from fedskew.types import Chain, Plan, Population

N, T_C, T_M = 10, 1.0, 0.276  # docs/methods.md 6.5: calibrated on the 16 % that paper 003 reports


def chains(*lengths):
    ids = iter(range(sum(lengths)))
    return tuple(Chain(0, tuple(next(ids) for _ in range(length))) for length in lengths)


def uniform(lengths, relay="server", *, t_c=T_C, t_m=T_M, t_x=None, **options):
    same = dict.fromkeys(range(sum(lengths)), t_m)
    hop = same if t_x is None else dict.fromkeys(same, t_x)
    return elapsed(
        Errand(
            Plan(chains(*lengths), relay=relay),
            dict.fromkeys(same, t_c),
            same,
            same,
            hop,
            **options,
        )
    )


def test_the_three_procedures_of_paper_003():
    assert uniform([1] * N) == pytest.approx(1.552)
    assert uniform([N]) == pytest.approx(15.52)
    assert uniform([N], "d2d") == pytest.approx(13.036)
    assert 1 - uniform([N], "d2d") / uniform([N]) == pytest.approx(0.16, abs=5e-4)


@pytest.mark.parametrize(("n", "saving"), [(5, 0.142), (20, 0.169), (50, 0.174)])
def test_device_to_device_saves_what_methods_calculates(n, saving):
    assert 1 - uniform([n], "d2d") / uniform([n]) == pytest.approx(saving, abs=1e-3)


def test_a_shared_uplink_serves_one_after_another():
    assert uniform([1] * N, shared_uplink=True) == pytest.approx(T_M + T_C + N * T_M)
    assert uniform([N], shared_uplink=True) == pytest.approx(uniform([N])), (
        "one chain never meets itself"
    )


@pytest.mark.parametrize("m", [1, 2, 5, 10])
@pytest.mark.parametrize("shared", [False, True])
def test_m_chains(m, shared):
    length, t_x = N // m, 0.1
    expected = T_M + length * T_C + (length - 1) * t_x + T_M + (m - 1) * T_M * shared
    assert uniform([length] * m, "d2d", t_x=t_x, shared_uplink=shared) == pytest.approx(expected)


def test_chains_of_unequal_length_upload_while_others_still_train():
    """4 + 3 + 3 clients: the short chains are through with the uplink before the long one comes;
    the bound (M - 1) T_m is 0.
    """
    assert uniform([4, 3, 3], "d2d", shared_uplink=True) == pytest.approx(uniform([4, 3, 3], "d2d"))


def test_several_slots_take_no_longer_than_one():
    plan = Plan(tuple(Chain(i % 3, (i,)) for i in range(6)))
    ones = dict.fromkeys(range(6), 1.0)
    assert elapsed(Errand(plan, ones, ones, ones)) == 3.0


# ---------------------------------------------------------------- heterogeneous clients


def replay(errand):
    """An independent program: time advances in small equal ticks; nothing but integers, no
    events, no queue of events.
    """
    plan = errand.plan
    runners = [
        {"place": 0, "left": errand.down[c.clients[0]], "doing": "down"}
        for c in plan.chains
        if c.clients
    ]
    orders = [c.clients for c in plan.chains if c.clients]
    waiting, sending, now = [], None, 0
    while any(r["doing"] != "over" for r in runners):
        changed = True
        while changed:
            changed = False
            for i, (r, order) in enumerate(zip(runners, orders, strict=True)):
                if r["doing"] in ("down", "train", "send") and r["left"] == 0:
                    changed = True
                    me, last = order[r["place"]], r["place"] + 1 == len(order)
                    if r["doing"] == "down":
                        r.update(doing="train", left=errand.compute[me])
                    elif r["doing"] == "train" and (plan.relay == "server" or last):
                        r.update(
                            doing="wait" if errand.shared_uplink else "send", left=errand.up[me]
                        )
                        if errand.shared_uplink:
                            waiting.append(i)
                    elif last:
                        r.update(doing="over")
                        sending = None if sending == i else sending
                    else:
                        sending = None if sending == i else sending
                        step = (
                            errand.down[order[r["place"] + 1]]
                            if plan.relay == "server"
                            else errand.hop[me]
                        )
                        r.update(doing="down", left=step, place=r["place"] + 1)
            if sending is None and waiting:
                sending = waiting.pop(0)
                runners[sending]["doing"] = "send"
                changed = True
        if all(r["doing"] == "over" for r in runners):
            return now
        for r in runners:
            if r["doing"] in ("down", "train", "send"):
                r["left"] -= 1
        now += 1
    return now


TIMES = st.lists(st.integers(1, 9), min_size=6, max_size=6)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=6),
    TIMES,
    TIMES,
    TIMES,
    TIMES,
    st.sampled_from(["server", "d2d"]),
    st.booleans(),
)
def test_the_clock_agrees_with_a_tick_by_tick_replay(groups, compute, down, up, hop, relay, shared):
    members = [tuple(i for i, g in enumerate(groups) if g == chain) for chain in range(3)]
    plan = Plan(tuple(Chain(0, clients) for clients in members), relay=relay)
    times = [dict(enumerate(t)) for t in (compute, down, up, hop)]
    errand = Errand(plan, *times, shared_uplink=shared)
    assert elapsed(errand) == replay(errand)


@settings(max_examples=100, deadline=None)
@given(TIMES, TIMES, TIMES)
def test_parallel_is_the_maximum_and_sequential_the_sum(compute, down, up):
    each = [sum(t) for t in zip(compute, down, up, strict=True)]
    times = [dict(enumerate(t)) for t in (compute, down, up)]
    assert elapsed(Errand(Plan(chains(*[1] * 6)), *times)) == max(each)
    assert elapsed(Errand(Plan(chains(6)), *times)) == sum(each)
    shared = elapsed(Errand(Plan(chains(*[1] * 6)), *times, shared_uplink=True))
    assert (
        max(max(each), min(c + d for c, d in zip(compute, down, strict=True)) + sum(up))
        <= shared
        <= sum(each)
    )


# ---------------------------------------------------------------- silence


def lonely(silent, relay="server", lengths=(1, 1), **options):
    ids = range(sum(lengths))
    compute = {i: 1.0 + i for i in ids}
    same = dict.fromkeys(ids, 0.5)
    return elapsed(
        Errand(
            Plan(chains(*lengths), relay=relay),
            compute,
            same,
            same,
            same,
            frozenset(silent),
            **options,
        )
    )


def test_a_silent_client_is_waited_for_until_it_should_have_answered():
    assert lonely([1]) == 0.5 + 2.0 + 0.5
    assert lonely([0]) == lonely([]) == 3.0


def test_a_deadline_ends_the_waiting():
    assert lonely([1], patience_seconds=1.2) == 2.0, "client 0 is through at 0.5 + 1 + 0.5"
    assert lonely([1], patience_seconds=9.0) == 9.0, "counted from when the model was sent"
    assert lonely([], patience_seconds=0.1) == 3.0, (
        "who answers is not cut off: the runtime has decided that already"
    )


def test_a_silent_client_takes_no_turn_on_a_shared_uplink():
    assert uniform([1] * 4, shared_uplink=True, silent=frozenset([0, 1])) == pytest.approx(
        T_M + T_C + 2 * T_M
    )


@pytest.mark.parametrize("silent", [0, 1, 2])
def test_a_chain_goes_on_without_the_silent_one(silent):
    """Through the server the wait is one upload; from device to device the model hops once more."""
    assert lonely([silent], lengths=(3,)) == pytest.approx(3 * 0.5 + 6.0 + 3 * 0.5)
    assert lonely([silent], "d2d", lengths=(3,)) == pytest.approx(0.5 + 6.0 + 0.5 + 2 * 0.5 + 0.5)


def test_everybody_silent_and_nobody_asked():
    assert lonely([0, 1, 2], "d2d", lengths=(3,)) == pytest.approx(0.5 + 6.0 + 3 * 0.5 + 2 * 0.5)
    assert elapsed(Errand(Plan(()), {}, {}, {})) == 0.0
    assert elapsed(Errand(Plan((Chain(0, ()),)), {}, {}, {})) == 0.0


# ---------------------------------------------------------------- times of turns and messages


def test_a_message_takes_its_trip_and_its_bits():
    means = Population(
        np.array([5, 5]), trip_seconds=np.array([0.1, 0.0]), uplink_bps=np.array([8e6, 16e6])
    )
    links = Links(means, Tariff(), 1_000_000)
    assert links.up([0, 1], 1_000_000) == {0: pytest.approx(1.1), 1: pytest.approx(0.5)}
    assert links.down([0, 1], 1_000_000, holders={0}) == {0: 0.0, 1: pytest.approx(0.5)}
    assert links.hop([0], 1_000_000) == {0: pytest.approx(1.1)}, (
        "no rate between devices is known: as to the server"
    )


def test_constant_times_are_per_model_and_per_turn():
    links = Links(
        Population(np.array([5]), trip_seconds=np.array([7.0])),
        Tariff(model_seconds=0.276, hop_seconds=0.1),
        1000,
    )
    assert links.up([0], 2000) == {0: pytest.approx(0.552)}
    assert links.hop([0], 1000) == {0: pytest.approx(0.1)}
    turn = compute_seconds(
        Population(np.array([30])), Tariff(compute_seconds=1.0), {0: 10.0}, {0: 30.0}
    )
    assert turn == {0: pytest.approx(1 / 3)}, (
        "one forward pass over what is trained on for one epoch"
    )


def test_a_delay_belongs_to_training():
    means = Population(
        np.array([10]), seconds_per_example=np.array([0.5]), delay_seconds=np.array([3.0])
    )
    assert compute_seconds(means, Tariff(), {0: 10.0}, {0: 10.0}) == {0: 8.0}
    assert compute_seconds(means, Tariff(), {0: 10.0}, {0: 10.0}, trains=False) == {0: 5.0}


def test_shannon_and_its_bad_input():
    assert shannon_bps(1e6, [0.0, 3.0]).tolist() == [0.0, 2e6]
    with pytest.raises(RunError, match="negative"):
        shannon_bps(1e6, [-0.5])
    with pytest.raises(RunError, match="not a number"):
        shannon_bps(1e6, [np.nan])
    with pytest.raises(RunError, match="bandwidth"):
        shannon_bps(0.0, [1.0])


@pytest.mark.parametrize(
    "name", ["snr", "seconds_per_example", "watts", "trip_seconds", "uplink_bps", "d2d_bps"]
)
def test_impossible_means_are_refused(name):
    with pytest.raises(RunError, match=rf"population\.{name}: -2 at client 1"):
        check_means(Population(np.array([5, 5]), **{name: np.array([1.0, -2.0])}))
    with pytest.raises(RunError, match="one number per client"):
        check_means(Population(np.array([5, 5]), **{name: np.array([1.0])}))
    check_means(Population(np.array([5, 5]), **{name: np.array([1.0, np.nan])}))


def test_a_rate_of_zero_is_refused():
    with pytest.raises(RunError, match="is not positive"):
        check_means(Population(np.array([5]), uplink_bps=np.array([0.0])))


def test_a_silent_first_device_hands_nothing_on_the_server_sends_again():
    plan = Plan((Chain(0, (0, 1)),), relay="d2d")
    seconds = {
        "compute": {0: 1.0, 1: 2.0},
        "down": {0: 0.1, 1: 0.2},
        "up": {0: 0.3, 1: 0.4},
        "hop": {0: 50.0, 1: 50.0},
    }
    assert elapsed(Errand(plan, **seconds, silent={0})) == pytest.approx(
        0.1 + (1.0 + 0.3) + 0.2 + 2.0 + 0.4
    )


def test_uplinks_are_not_shared_unless_a_tariff_says_so():
    assert Tariff() == Tariff(shared_uplink=False, patience_seconds=0.0)
