"""With ``[trust]`` a client cannot lie its way into every round, and honest ones do not notice it.

Scripted clients hold ten classes in unlike shares (Dirichlet 0.2). Their output bias moves as their
labels and their loss say, with noise, so updates tell what real ones tell.
"""

from __future__ import annotations

import numpy as np
import pytest

import fedskew
from fedskew.errors import RecipeError
from fedskew.loop.federation import run, settle
from fedskew.loop.measuring import PROBE
from fedskew.loop.trust.book import LOWEST, Book, open_book
from fedskew.loop.trust.cap import enough, under_cap
from fedskew.loop.trust.losses import believe, judge, usual
from fedskew.loop.trust.mixes import judge as judge_mixes
from fedskew.loop.trust.options import Trust
from fedskew.recipe import fingerprint, load, method_of, override, resolve
from fedskew.records.tensors import checkpoint_bytes, read_checkpoint
from fedskew.runtime.hostile import Hostile, HostileRuntime
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.streams import stream
from fedskew.types import HeadUpdates, Layout, LocalJob, Scores

K, C, M, ROUNDS, STEPS, LR = 20, 10, 5, 40, 3, 0.05
HEAD = Layout.of([("weight", (C, 4), "weight"), ("bias", (C,), "weight")])
PROBED = 1 << 31


class Learners(ScriptedRuntime):
    """Clients whose updates show their labels, and how wrong the model is on them."""

    def __init__(self, seed=0, alpha=0.2):
        rng, sizes = stream(seed, "partition"), np.where(np.arange(K) % 4, 72, 576)
        mixes = rng.dirichlet(np.full(C, alpha), K)
        counts = np.stack([rng.multinomial(n, mix) for n, mix in zip(sizes, mixes, strict=True)])
        super().__init__(counts, script=self.reply, layout=HEAD)
        self.shares = counts / counts.sum(axis=1, keepdims=True)
        self.hard = 0.5 + stream(seed, "hard").random(K)

    def loss_of(self, client, round):
        noise = stream(1, "noise", client, round).normal(scale=0.05)
        return 2.3 * self.hard[client] * 0.97**round * np.exp(noise)

    def reply(self, client, round, model):
        probed = round >= PROBED
        size = 1.0 if probed else self.loss_of(client, round) / 2.3
        noise = stream(2, "noise", client, round).normal(scale=0.0 if probed else 0.01, size=C)
        pull = size * (self.shares[client] - 1 / C + noise)
        moved, steps = model.copy(), 1 if probed else STEPS
        moved[-C:] += ((PROBE["lr"] if probed else LR) * steps * pull).astype(np.float32)
        loss = 2.3 if probed else self.loss_of(client, round)
        return Reply(moved, float(loss), 0.01, steps, int(self.label_counts()[client].sum()))

    def score(self, order):
        losses = [self.loss_of(int(c), order.round) for c in order.clients]
        return Scores(np.array(losses), np.zeros(len(losses)), np.full(len(losses), 72))


CLUSTERS = {
    "signal": {"use": "histogram"},
    "distance": {"use": "hellinger"},
    "clustering": {"use": "kmedoids"},
}
RULES = {  # rule -> tables of the recipe, how its liar lies
    "power_of_choice": (
        {"selection": {"use": "power_of_choice", "d": K}},
        Hostile(clients=(1,), kind="lie_loss"),
    ),
    "fedlecc": (
        {**CLUSTERS, "selection": {"use": "fedlecc"}},
        Hostile(clients=(3,), kind="lie_loss"),
    ),
    "bacsa": (
        {"signal": {"use": "histogram"}, "selection": {"use": "bacsa", "weights": "examples"}},
        Hostile(clients=(0,), kind="lie_histogram"),
    ),
    "greedy_balance": (
        {
            "signal": {"use": "histogram"},
            "selection": {"use": "greedy_balance", "weights": "examples"},
        },
        Hostile(clients=(0,), kind="lie_histogram"),
    ),
    "one_per_cluster": (
        {**CLUSTERS, "selection": {"use": "one_per_cluster"}},
        Hostile(clients=(5,), kind="lie_histogram", mix="rare"),
    ),
}


def recipe_of(tables, on, **more):
    numbers = {"rounds": ROUNDS, "clients_per_round": M, "evaluate_every": 0}
    local = {"lr": LR, "batch": 32}
    raw = {**tables, "run": numbers, "local": local, "trust": {"on": on}, "data": {"clients": K}}
    return resolve(override(raw, more))


def played(tables, on, hostile=None, seed=0, **more):
    """The state after all rounds."""
    # milder skew where a lone label must stand out to be a cluster of its own
    world = Learners(seed, alpha=0.5 if tables["selection"]["use"] == "one_per_cluster" else 0.2)
    runtime = world if hostile is None else HostileRuntime(world, hostile, seed)
    return list(run(settle(method_of(recipe_of(tables, on, **more)), runtime, seed)))[-1][0]


@pytest.mark.parametrize("rule", RULES)
def test_a_liar_is_not_chosen_more_often_than_when_it_is_honest(rule):
    tables, hostile = RULES[rule]
    (liar,) = hostile.clients
    before = [played(tables, False, h).times_selected[liar] for h in (None, hostile)]
    assert before[1] > max(1.5 * before[0], 30)  # without trust lying pays
    honest, lying = (played(tables, True, h) for h in (None, hostile))
    assert lying.times_selected[liar] <= max(1.5 * honest.times_selected[liar], 2)
    assert lying.times_selected[liar] <= 2 * lying.times_selected.mean()
    trust = open_book(lying).trust
    assert trust[liar] <= 0.5
    assert (np.delete(trust, liar) == 1).all()  # nobody else is doubted
    assert (open_book(honest).trust == 1).all()


@pytest.mark.parametrize("loss", [4.0, 9.0])
def test_lies_far_below_the_bound_are_found_too(loss):
    tables, _ = RULES["power_of_choice"]
    hostile = Hostile(clients=(1,), kind="lie_loss", loss=loss)
    assert played(tables, False, hostile).times_selected[1] == ROUNDS
    honest, lying = played(tables, True), played(tables, True, hostile)
    assert lying.times_selected[1] <= max(1.5 * honest.times_selected[1], 2)


def test_four_liars_of_twenty_gain_nothing_either():
    tables, _ = RULES["power_of_choice"]
    liars = (1, 5, 9, 13)
    hostile = Hostile(clients=liars, kind="lie_loss")
    honest, lying = (played(tables, True, h).times_selected for h in (None, hostile))
    assert played(tables, False, hostile).times_selected[list(liars)].min() == ROUNDS
    assert lying[list(liars)].sum() <= 1.5 * honest[list(liars)].sum()


def test_a_refuted_mix_is_replaced_by_what_the_update_shows():
    tables, hostile = RULES["greedy_balance"]
    state = played(tables, True, hostile, **{"run.rounds": 1})
    truth = Learners().shares
    assert np.abs(state.signal.rows[0] - truth[0]).sum() / 2 < 1e-5
    assert (state.signal.rows[1:] == truth[1:]).all()  # honest claims stay as exact as they are


def test_a_hard_task_is_not_a_lie():
    """A client on which the model is eight times as bad as on others, and whose updates show it."""

    class Hard(Learners):
        def __init__(self):
            super().__init__()
            self.hard[7] = 8.0

    tables, _ = RULES["power_of_choice"]
    recipe = recipe_of(tables, True, **{"run.rounds": 12})
    state = list(run(settle(method_of(recipe), Hard(), 0)))[-1][0]
    assert (open_book(state).trust == 1).all()
    assert state.times_selected[7] == 6  # as often as anybody may be: cap 2, m / K = 1/4


def test_who_does_not_answer_the_probe_is_asked_again():
    """Nothing is believed of a client that does not train; it comes in as soon as it does."""

    class Shy(Learners):
        def reply(self, client, round, model):
            if client == 4 and round in (PROBED, PROBED + 1):
                return Reply(None, failure="no answer", sent=False)
            return super().reply(client, round, model)

    tables, _ = RULES["bacsa"]
    setting = settle(method_of(recipe_of(tables, True, **{"run.rounds": 3})), Shy(), 0)
    states, records = zip(*run(setting), strict=True)
    assert records[0].failures == {4: "no usable reply to the probe"}
    assert not states[0].signal.known[4]
    assert states[1].signal.known.all()
    assert (open_book(states[-1]).trust == 1).all()


def test_the_check_is_charged_and_named():
    tables, hostile = RULES["bacsa"]
    method = method_of(recipe_of(tables, True))
    record = next(run(settle(method, HostileRuntime(Learners(), hostile, 0), 0)))[1]
    assert record.failures == {0: "its label counts contradict its own update"}
    model = HEAD.bytes
    probed = {t.direction: t.bytes for t in record.transfers if t.kind == "probe"}
    assert sum(probed.values()) == 2 * K * model


# ---------------------------------------------------------------- the parts


def test_the_cap_holds_around_any_rule():
    """A rule that wants the same clients for ever, against the cap in a naive loop."""
    for cap, m, k in ((2.0, 5, 20), (1.5, 3, 10), (1.0, 2, 8), (2.0, 6, 6)):
        times = np.zeros(k, np.int64)
        for t in range(1, 41):
            there = np.ones(k, bool)
            free = under_cap(times, k, m, t, cap)
            kept = enough(free, there, m, there, times)
            times[np.flatnonzero(kept)[:m]] += 1
            assert times.max() <= max(np.ceil(t * m / k), cap * t * m / k)
            assert times.sum() == t * m  # and nobody's place stays empty


def test_places_are_filled_by_those_used_least_first_and_liars_last():
    times, there = np.array([9, 2, 5, 1]), np.ones(4, bool)
    nobody, reliable = np.zeros(4, bool), np.array([True, True, True, False])
    for budget, kept in ((1, [1]), (2, [1, 2]), (3, [0, 1, 2]), (4, [0, 1, 2, 3])):
        found = enough(nobody, there, budget, reliable, times)
        assert np.flatnonzero(found).tolist() == kept


def fresh_book(k=6):
    nan = np.full(k, np.nan)
    return Book(np.ones(k), np.ones(k), nan, nan)


def test_trust_falls_by_half_and_comes_back_slowly():
    book = fresh_book().refute([1]).stain([2])
    assert book.trust.tolist() == [1, 0.5, 0.5, 1, 1, 1]
    for _ in range(100):
        book = book.confirm([1, 2])
    assert book.trust[1] == pytest.approx(1, abs=1e-3)
    assert book.trust[2] == 0.5  # a false label mix stays false
    for _ in range(100):
        book = book.refute([1])
    assert book.trust[1] == LOWEST


def test_losses_by_hand():
    known = np.array([1.0, 1.0, 1.1, 0.9, 1.0, 1.0])
    normal, book, ids = usual(known, 3.0), fresh_book(), np.arange(6)
    assert normal.median == 1.0
    assert normal.most == pytest.approx(1.3)  # the spread is 0, so the least factor
    claims = np.array([5.0, 1.2])
    assert believe(claims, ids[:2], normal, book) == pytest.approx([1.3, 1.2])
    # two clients claim 5; the update of one moved five times as far as the others', that of the
    # other as far as theirs
    losses = np.array([1.0, 5.0, 1.0, 5.0, 1.0, 1.0])
    pulls = np.array([2.0, 10.0, 2.0, 2.0, 2.0, 2.0])
    heard = judge(losses, pulls, ids, normal, book, 3.0, LocalJob())
    assert heard.refuted.tolist() == [False, False, False, True, False, False]
    assert heard.losses == pytest.approx([1, 5, 1, 1, 1, 1])
    doubted = heard.book.refute([3])
    assert believe(np.array([7.0]), ids[3:4], normal, doubted) == pytest.approx([0.5])
    # where updates say little, only what is nine times the median is refuted
    adam = judge(losses, pulls, ids, normal, book, 3.0, LocalJob(optimizer="adam"))
    assert not adam.refuted.any()
    assert judge(9.1 * losses, None, ids, normal, book, 3.0, LocalJob()).refuted.all()


def test_a_claim_is_refuted_beyond_its_limit_in_total_variation():
    """No bias moved: everybody shows half and half. Claims are .1 and .5 away from that."""
    still = np.zeros((3, 2))
    answered, sizes = np.array([True, True, False]), np.full(3, 10)
    shown = HeadUpdates(
        np.zeros((2, 1)), np.zeros((3, 2, 1)), still[0], still, np.ones(3), answered, sizes
    )
    claims, asked = np.array([[0.6, 0.4], [1.0, 0.0], [1.0, 0.0]]), np.ones(3, np.bool_)
    for limit, refuted in ((0.45, [1]), (0.55, []), (0.05, [0, 1])):
        found = judge_mixes(claims, asked, shown, 0.1, np.full(3, limit))
        assert found.refuted.tolist() == refuted
        assert found.silent.tolist() == [2]
        assert found.rows[refuted].tolist() == [[0.5, 0.5]] * len(refuted)


def test_what_is_usual_has_no_unit():
    values = np.array([1.0, 1.5, 0.7, 2.0, 1.2, 0.9])
    assert usual(100 * values, 9.0).limit == pytest.approx(usual(values, 9.0).limit)
    assert 1.3 < usual(values, 9.0).limit < 9.0


def test_the_largest_usual_ratio_is_not_refuted():
    """All pull alike but one, whose ratio is the bound itself."""
    normal, ids = usual(np.ones(6), 3.0), np.arange(6)
    most = usual(np.ones(6), 3.0).most
    for last, refuted in ((most, False), (np.nextafter(most, 9.0), True)):
        losses = 2.0 * np.array([1, 1, 1, 1, 1, last])
        heard = judge(losses, np.full(6, 2.0), ids, normal, fresh_book(), 3.0, LocalJob())
        assert heard.refuted[-1] == refuted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cap": 0.5}, r"trust\.cap"),
        ({"mix_gap": 0.0}, r"trust\.mix_gap"),
        ({"loss_factor": 1.0}, r"trust\.loss_factor"),
        ({"head_trained": False}, "unknown option"),
    ],
)
def test_senseless_options_are_refused(options, message):
    with pytest.raises(RecipeError, match=message):
        resolve({"trust": {"on": True, **options}})


# ---------------------------------------------------------------- nothing else changes


def test_resume_is_exact(tmp_path):
    tables, hostile = RULES["fedlecc"]
    setting = settle(method_of(recipe_of(tables, True)), HostileRuntime(Learners(), hostile, 0), 0)
    states = [state for state, _ in run(setting)]
    (tmp_path / "c").write_bytes(checkpoint_bytes(states[7], "mark"))
    resumed = [state for state, _ in run(setting, read_checkpoint(tmp_path / "c", "mark"))]
    assert [checkpoint_bytes(s, "") for s in resumed] == [
        checkpoint_bytes(s, "") for s in states[8:]
    ]


@pytest.mark.parametrize("rule", RULES)
def test_a_recipe_without_trust_never_comes_here(rule, monkeypatch):
    def nobody(*given, **more):
        raise AssertionError("trust is off")

    for name in ("federation.invite", "federation.inspect"):
        monkeypatch.setattr(f"fedskew.loop.{name}", nobody)
    assert "trust" not in played(RULES[rule][0], False).memory
    with pytest.raises(AssertionError, match="trust is off"):
        played(RULES[rule][0], True)


def test_a_recipe_without_trust_keeps_its_fingerprint():
    resolved = resolve(load("fedlecc"))
    older = {name: table for name, table in resolved.items() if name != "trust"}
    assert fingerprint(older) == fingerprint(resolved)
    on = resolve(override(load("fedlecc"), {"trust.on": True}))
    assert fingerprint(on) != fingerprint(resolved)


SMALL = {"run.rounds": 3, "data.clients": 12, "run.clients_per_round": 4}


def test_two_workers_give_the_same_bytes():
    lie = {"faults.hostile.clients": [1], "faults.hostile.kind": "lie_histogram"}
    settings = {**SMALL, **lie, "trust.on": True}
    one, two = (fedskew.run("fedlecc", settings=settings, workers=w) for w in (1, 2))
    assert one.models.tobytes() == two.models.tobytes()
    assert one.clients["trust"] == two.clients["trust"]
    assert one.clients["trust"][1] <= 0.5


@pytest.mark.parametrize(
    ("recipe", "signal"),
    [
        ("poc", ""),
        ("oort", ""),
        ("fedlecc", "histogram"),
        ("fedlecc", "private"),
        ("similarity", "private"),
    ],
)
def test_honest_clients_are_not_doubted(recipe, signal):
    """On real examples, with exact and with noisy label counts: at most 1 % of the reports."""
    own = load(recipe)
    if signal:
        own["signal"] = {"use": signal}
    doubted = reports = 0
    for seed in (0, 1):
        settings = {"data.clients": 30, "run.clients_per_round": 10, "run.rounds": 5}
        settings |= {"trust.on": True, "run.evaluate_every": 0, "local.lr": 0.05}
        played = fedskew.run(own, settings=settings, seed=seed, workers=1)
        doubted += sum(trust < 0.999 for trust in played.clients["trust"])
        reports += 30 + sum(len(record.loss) for record in played.rounds)
    assert doubted <= 0.01 * reports


def test_the_usual_strictness():
    assert Trust() == Trust(on=False, cap=2.0, probe=True, mix_gap=0.05, loss_factor=3.0)
