"""Baton: the number of chains against brute force, predicted seconds and models against the clock
and the ledger, and what haste does to a plan.
"""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.accounting.clock import Errand, elapsed
from fedskew.accounting.traffic import total_bytes
from fedskew.errors import RecipeError, RunError
from fedskew.labels.omega import omega, omega_balanced
from fedskew.loop.federation import run, settle
from fedskew.loop.timing import pace_of
from fedskew.procedure.baton import (
    baton,
    brings,
    members_of,
    models_sent,
    round_seconds,
)
from fedskew.procedure.groups import deal, link
from fedskew.recipe import method_of, resolve
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import Pace, Population, Signal, View

SIZE, CLASSES = 10, 5


def pace(rng=None, *, compute=1.0, send=0.276, hop=0.276, shared=False):
    vary = (lambda x: x * rng.uniform(0.5, 2, SIZE)) if rng else (lambda x: np.full(SIZE, x))
    return Pace(vary(compute), vary(send), vary(hop), shared)


def view_of(made, rows=None):
    rows = np.full((SIZE, CLASSES), 1 / CLASSES) if rows is None else rows
    sizes = np.full(SIZE, 20)
    return View(
        round=1,
        budget=SIZE,
        population=Population(sizes),
        available=np.ones(SIZE, bool),
        loss=np.full(SIZE, np.nan),
        times_selected=np.zeros(SIZE, np.int64),
        last_selected=np.zeros(SIZE, np.int64),
        signal=Signal(rows, sizes.astype(float), "disclosed"),
        pace=made,
    )


def plan(view, seed=0, **options):
    return baton(np.arange(SIZE), view, np.random.default_rng(seed), **options)


def errand_of(made, plan):
    times = [dict(enumerate(values)) for values in (made.compute, made.send, made.send, made.hop)]
    compute, down, up, hop = times
    return Errand(plan, compute, down, up, hop, shared_uplink=made.shared_uplink)


@pytest.mark.parametrize("relay", ["d2d", "server"])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("seed", range(3))
def test_predicted_seconds_are_those_of_the_clock(count, relay, seed):
    rng = np.random.default_rng(seed)
    order, groups, made = rng.permutation(SIZE), deal(SIZE, count), pace(rng)
    played = link(np.arange(SIZE), order, groups, relay=relay, broken="skip")
    told = round_seconds(made, members_of(order, groups), relay)
    assert told == pytest.approx(elapsed(errand_of(made, played)))


@pytest.mark.parametrize("count", [1, 2, 5, 10])
@pytest.mark.parametrize("seed", range(3))
def test_a_shared_uplink_too(count, seed):
    rng = np.random.default_rng(seed)
    order, groups, made = rng.permutation(SIZE), deal(SIZE, count), pace(rng, shared=True)
    played = link(np.arange(SIZE), order, groups, relay="d2d", broken="skip")
    told = round_seconds(made, members_of(order, groups), "d2d")
    assert told == pytest.approx(elapsed(errand_of(made, played)))


@pytest.mark.parametrize("relay", ["d2d", "server"])
@pytest.mark.parametrize("chains", [1, 2, 5, 10])
def test_predicted_models_are_those_of_the_ledger(chains, relay):
    counts = np.full((SIZE, 2), 5)
    table = {"use": "chains", "chains": chains, "relay": relay, "groups": "random"}
    changes = {"procedure": table, "run": {"clients_per_round": SIZE, "rounds": 1}}
    setting = settle(method_of(resolve(changes)), ScriptedRuntime(counts), 0)
    *_, (_, record) = run(setting)
    sends = [t for t in record.transfers if t.kind == "model"]
    models = sum(total_bytes(sends, way) for way in ("down", "up", "d2d"))
    assert models == models_sent(SIZE, chains, relay) * setting.description.layout.bytes


def test_without_haste_everybody_is_one_chain_and_nothing_need_be_known():
    blind = view_of(None)
    (chain,) = plan(blind).chains
    assert sorted(chain.clients) == list(range(SIZE))
    assert plan(blind).relay == "d2d"
    assert plan(blind, seed=1).chains != plan(blind, seed=2).chains  # another order each round
    assert plan(blind, haste=0.0) != plan(view_of(pace()), haste=1.0)


def test_haste_goes_from_one_chain_to_none():
    made = view_of(pace())
    numbers = [len(plan(made, haste=haste).chains) for haste in np.linspace(0, 1, 11)]
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1]) == (1, SIZE)
    assert len(set(numbers)) >= 3  # and stops in between


def test_slow_links_make_chains_pay_even_in_time():
    """Where a message takes thirty times a turn, handing on is cheap if it goes from device to
    device quickly, and nobody waits for uploads one by one.
    """
    slow = pace(compute=0.1, send=3.0, hop=0.1, shared=True)
    assert len(plan(view_of(slow), haste=1.0).chains) == 1
    fast = pace(compute=3.0, send=0.1, hop=0.1)
    assert len(plan(view_of(fast), haste=1.0).chains) == SIZE


def best_by_force(made, rows, haste, gain, imbalance):
    """The cheapest number of chains of clients who are all alike, from the formulas themselves."""
    prices = {}
    for count in range(1, SIZE + 1):
        groups = members_of(np.arange(SIZE), deal(SIZE, count))
        labels = np.array([rows[g].mean(axis=0) for g in groups])
        share = omega(labels) / omega_balanced(1, CLASSES)
        seconds = max(
            made.send[g[0]] + made.compute[g].sum() + made.hop[g[:-1]].sum() + made.send[g[-1]]
            for g in groups
        )
        worth = (SIZE / count) ** gain * (1 - imbalance * min(1, share))
        prices[count] = (SIZE + count) ** (1 - haste) * seconds**haste / worth
    return min(prices, key=lambda count: (round(prices[count], 9), count))


@pytest.mark.parametrize("haste", [0.2, 0.5, 0.8, 1.0])
@pytest.mark.parametrize(("gain", "imbalance"), [(0.32, 0.0), (0.32, 0.9), (0.7, 0.5), (0.95, 0.9)])
@pytest.mark.parametrize("second", [0.2, 0.02])
def test_the_number_of_chains_is_the_cheapest_one(haste, gain, imbalance, second):
    """Clients who are all alike: every cut is as balanced as any other."""
    rows, made = np.tile([0.8, 0.05, 0.05, 0.05, 0.05], (SIZE, 1)), pace()
    rows = rows * [1, 1, 1, 1, second]
    rows = rows / rows.sum(axis=1, keepdims=True)
    chosen = plan(view_of(made, rows), haste=haste, gain=gain, imbalance=imbalance)
    assert len(chosen.chains) == best_by_force(made, rows, haste, gain, imbalance)


@pytest.mark.parametrize("relay", ["d2d", "server"])
def test_skewed_clients_of_one_kind_each(relay):
    """Ten clients with one class each of five: the price of every number of chains, with the best
    cut there is (classes apart as far as they go), is what the plan goes by.
    """
    rows, made = np.eye(CLASSES)[np.repeat(np.arange(CLASSES), 2)], pace()
    prices = {}
    for count in (1, 2, 3, 4, 5, 10):
        labels = [
            np.bincount(np.arange(i, SIZE, count) % CLASSES, minlength=CLASSES)
            for i in range(count)
        ]
        shares = np.array([row / row.sum() for row in labels])
        length = -(-SIZE // count)
        share = min(1.0, omega(shares) / omega_balanced(1, CLASSES))
        hops = (length - 1) * (0.276 if relay == "d2d" else 2 * 0.276)
        prices[count] = (2 * 0.276 + length + hops) / ((SIZE / count) ** 0.32 * (1 - 0.9 * share))
    chosen = plan(view_of(made, rows), haste=1.0, imbalance=0.9, relay=relay)
    assert len(chosen.chains) == min(prices, key=prices.get)


def test_unknown_times_are_those_of_the_others_or_of_turns():
    """The clock of an app that nobody has timed yet says 0 for everybody."""
    zeros = Pace(np.zeros(SIZE), np.zeros(SIZE), np.zeros(SIZE))
    assert len(plan(view_of(zeros), haste=1.0).chains) == SIZE
    one = pace()
    holes = Pace(np.where(np.arange(SIZE) == 3, np.nan, one.compute), one.send, one.hop)
    assert plan(view_of(holes), haste=1.0) == plan(view_of(one), haste=1.0)


def test_one_client_is_one_chain():
    for haste in (0.0, 1.0):
        made = baton(np.array([4]), view_of(pace()), np.random.default_rng(0), haste=haste)
        assert [chain.clients for chain in made.chains] == [(4,)]


def test_unbalanced_chains_count_for_less():
    """One class each: the more chains, the less of a label mix each of them has."""
    alone = np.eye(CLASSES)[np.arange(SIZE) % CLASSES]
    options = {"haste": 0.9, "gain": 0.7}
    even = len(plan(view_of(pace()), imbalance=0.9, **options).chains)
    skewed = len(plan(view_of(pace(), alone), imbalance=0.9, **options).chains)
    assert skewed < even
    assert brings(5, 0.5, 0.3, 1.0) == pytest.approx(5**0.5 * 0.7)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(RecipeError, match="haste"):
        plan(view_of(pace()), haste=1.5)
    with pytest.raises(RecipeError, match="gain"):
        plan(view_of(pace()), gain=0.0)
    with pytest.raises(RunError, match="what a turn takes"):
        plan(view_of(None), haste=0.5)
    assert baton(np.zeros(0, int), view_of(None), np.random.default_rng(0)).chains == ()


def test_the_loop_says_what_a_turn_takes():
    """T_c = 1 and T_m = .276 make a parallel round of 1.552 s."""
    changes = {
        "procedure": {"use": "baton", "haste": 1.0},
        "signal": {"use": "histogram"},
        "run": {"clients_per_round": SIZE, "rounds": 1},
        "devices": {"compute_seconds": 1.0, "message_seconds": 0.276},
    }
    setting = settle(method_of(resolve(changes)), ScriptedRuntime(np.full((SIZE, 2), 5)), 0)
    made = pace_of(setting, setting.method.job)
    assert made.compute.tolist() == [1.0] * SIZE
    assert made.send.tolist() == pytest.approx([0.276] * SIZE)
    *_, (_, record) = run(setting)
    assert len(record.chains) == SIZE
    assert record.cost.seconds == pytest.approx(1.552)
