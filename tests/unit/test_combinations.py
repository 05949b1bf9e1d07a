"""Combinations of stages that the reference loop (tests/parity) found wrong, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.accounting.links import Tariff
from fedskew.aggregation import AGGREGATIONS
from fedskew.errors import RecipeError
from fedskew.loop.federation import Method, named, play_round, prepare, settle
from fedskew.procedure import PROCEDURES
from fedskew.recipe import resolve
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import AskLoss, AskTrial, AskUpdates, Chain, Layout, Plan, Population, Scores

COUNTS = np.array([[4, 6], [9, 1], [5, 5], [2, 8]])  # ten examples each
LAYOUT = Layout.of([("head.weight", (2, 2), "weight"), ("head.bias", (2,), "weight")])
S = LAYOUT.bytes
HOME = np.array([0, 0, 3, 3])


class World(ScriptedRuntime):
    """Client 1 reports losses that make no sense; client 2 sends nothing, client 3 only NaN."""

    def __init__(self, *, faults=False, **options):
        def script(client, round, model):
            if faults and client == 2:
                return Reply(None, failure="dropped out", sent=False)
            damage = np.float32(np.nan if faults and client == 3 else 1)
            return Reply(model + damage, 0.5, 1.0, 2, 10)

        super().__init__(COUNTS, layout=LAYOUT, script=script, **options)

    def score(self, order):
        losses = np.where(np.asarray(order.clients) == 1, np.nan, 1.0)
        return Scores(losses, losses, np.full(len(losses), 10))


def asking(question):
    """Everybody is asked, then clients 0 and 1 are chosen."""
    return lambda view, rng: np.array([0, 1]) if view.answers else question


def first_two(view, rng):
    return np.array([0, 1])


def in_slots(ids, view, rng):
    return Plan(tuple(Chain(int(HOME[c]), (int(c),)) for c in ids), home=HOME)


def play(select, procedure="parallel", *, rounds=1, world=None, options=None, **changes):
    target = PROCEDURES[procedure] if isinstance(procedure, str) else procedure
    method = Method(
        selection=named("selection", "rule", select),
        procedure=named("procedure", "procedure", target, options or {}),
        aggregation=named("aggregation", "mean", AGGREGATIONS["mean"]),
        clients_per_round=2,
        **{"min_ok": 0, "rounds": rounds, **changes},
    )
    setting = settle(method, world or World(), 0)
    state, _ = prepare(setting)
    for _ in range(rounds):
        state, record = play_round(setting, state)
    return record


def sent(record, direction, kind):
    found = [t for t in record.transfers if (t.direction, t.kind) == (direction, kind)]
    return sum(t.bytes for t in found), sum(t.multicast for t in found)


EVERYBODY = np.arange(4)


def test_whoever_holds_its_own_model_is_still_sent_the_centres_of_fedsoft():
    options = {"centres": 2, "draw": "given"}
    record = play(asking(AskLoss(EVERYBODY)), "fedsoft", options=options)
    asked, shares, trained = 4 * S, 4 * 2 * S, 2 * 2 * S
    assert sent(record, "down", "model")[0] == asked + shares + trained


@pytest.mark.parametrize(
    ("question", "kind", "transmissions"),
    [
        (AskLoss(EVERYBODY), "model", 2),
        (AskUpdates(EVERYBODY), "probe", 2),
        (AskTrial(EVERYBODY), "probe", 2),
        (AskTrial(np.array([0, 1])), "probe", 1),
    ],
)
def test_one_transmission_for_every_slot_that_somebody_asked_lives_in(
    question, kind, transmissions
):
    """Four slots, and clients live in the first and the last."""
    record = play(asking(question), in_slots, rounds=2, resend=True)
    trained = S if kind == "model" else 0
    assert sent(record, "down", kind)[1] == transmissions * S + trained


def test_a_loss_that_makes_no_sense_was_computed_all_the_same():
    plain = play(first_two)
    record = play(asking(AskTrial(np.array([0, 1]))))
    extra = record.cost.sample_passes - plain.cost.sample_passes
    assert extra == pytest.approx(20 + 40 / 3)


@pytest.mark.parametrize(("question", "kind"), [(AskTrial, "probe"), (AskUpdates, "gradient")])
def test_radios_send_what_the_ledger_says(question, kind):
    """Computing costs nothing here: what is left are bytes."""
    population = Population(COUNTS.sum(axis=1), watts=np.zeros(4), uplink_bps=np.full(4, 8.0))
    world = World(faults=True, population=population)
    record = play(asking(question(np.array([2, 3]))), world=world)
    assert sent(record, "up", kind)[0] == S, "client 2 sends nothing, client 3 sends NaN"
    up = sum(t.bytes for t in record.transfers if t.direction == "up")
    assert record.cost.joules == pytest.approx(up)


def test_a_trial_may_come_before_the_first_plan_of_fedsoft():
    options = {"centres": 2, "draw": "given"}
    record = play(asking(AskTrial(EVERYBODY)), "fedsoft", options=options)
    assert not record.failures


@pytest.mark.parametrize(
    ("procedure", "resend", "late"),
    [("parallel", True, True), ("parallel", False, False), ("local_only", False, False)],
)
def test_a_deadline_counts_what_travels_and_nothing_else(procedure, resend, late):
    """10 ms to compute, S seconds for a model up or down; the deadline allows one of them."""
    population = Population(COUNTS.sum(axis=1), uplink_bps=np.full(4, 8.0))
    tariff = Tariff(patience_seconds=S + 1.0)
    select = asking(AskLoss(EVERYBODY)) if procedure == "parallel" else first_two
    world = World(population=population)
    record = play(select, procedure, resend=resend, tariff=tariff, world=world)
    assert bool(record.failures) == late
    up = sum(t.bytes for t in record.transfers if (t.direction, t.kind) == ("up", "model"))
    assert up == (0 if late or procedure == "local_only" else 2 * S), "who is late sends nothing"


def test_without_a_deadline_nobody_is_late():
    population = Population(COUNTS.sum(axis=1), uplink_bps=np.full(4, 8.0))
    record = play(first_two, world=World(population=population), tariff=Tariff())
    assert not record.failures
    assert record.cost.seconds > 2 * S


def test_the_deadline_of_a_question_counts_the_part_that_is_sent_up():
    population = Population(COUNTS.sum(axis=1), uplink_bps=np.full(4, 8.0))
    layout = Layout.of(
        [("body", (60,), "weight"), *[(b.name, b.shape, b.kind) for b in LAYOUT.blocks]]
    )
    world = ScriptedRuntime(COUNTS, layout=layout, population=population)
    tariff = Tariff(patience_seconds=1.5 * layout.bytes)
    record = play(asking(AskUpdates(EVERYBODY, "last")), tariff=tariff, world=world)
    assert sent(record, "up", "gradient")[0] == 4 * S


@pytest.mark.parametrize("server", ["scaffold", "dyn"])
def test_only_one_side_corrects_gradients(server):
    raw = {"procedure": {"use": "fedsoft"}, "aggregation": {"use": server}}
    with pytest.raises(RecipeError, match="corrects gradients, and so does procedure fedsoft"):
        resolve(raw)
