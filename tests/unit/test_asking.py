"""What a rule may ask for: answered truthfully, charged by docs/methods.md 9.1, no part of
training.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from fedskew.aggregation import AGGREGATIONS
from fedskew.errors import RecipeError, RunError
from fedskew.loop.asking import plausible
from fedskew.loop.federation import Method, named, play_round, prepare, run, settle
from fedskew.procedure import PROCEDURES
from fedskew.recipe import load, method_of, override, resolve
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import (
    AskLoss,
    AskTrial,
    AskUpdates,
    Layout,
    Scores,
    SelectionRule,
    bind,
    declares,
    needs,
)

COUNTS = np.array([[4, 6], [9, 1], [5, 5], [2, 8], [7, 3]])
LAYOUT = Layout.of(
    [("body", (3,), "weight"), ("head.weight", (2, 2), "weight"), ("head.bias", (2,), "weight")]
)
S = LAYOUT.bytes


class World(ScriptedRuntime):
    """Losses are the client's number plus the model's first entry; training adds the client's
    number + 1 everywhere.
    """

    def __init__(self):
        super().__init__(
            COUNTS,
            layout=LAYOUT,
            script=lambda c, r, m: Reply(m + np.float32(c + 1), 0.5 + c, 1.0, 2, 10),
        )
        self.asked = []

    def score(self, order):
        n = len(order.clients)
        self.asked.append((list(order.clients), order.which, order.max_examples))
        first = np.array([order.models[s][0] for s in order.start], float)
        return Scores(order.clients + first, np.zeros(n), np.full(n, 10))


def play(rule, *, options=None, rounds=1, resend=False, world=None):
    method = Method(
        selection=named("selection", "rule", rule, options),
        procedure=named("procedure", "parallel", PROCEDURES["parallel"]),
        aggregation=named("aggregation", "mean", AGGREGATIONS["mean"], {"weights": "uniform"}),
        rounds=rounds,
        clients_per_round=2,
        resend=resend,
    )
    setting = settle(method, world or World(), 0)
    setting.initial[:] = 0
    state, _ = prepare(setting)
    records = []
    for _ in range(rounds):
        state, record = play_round(setting, state)
        records.append(record)
    return setting, state, records


def ledger(record):
    return {(t.direction, t.kind): (t.bytes, t.multicast) for t in record.transfers if t.bytes}


def top_two(view, rng):
    if not view.answers:
        return AskLoss(np.array([0, 2, 4]))
    answer = view.answers[-1]
    return answer.ask.clients[np.argsort(-answer.values)[:2]]


def test_losses_are_asked_of_whom_the_rule_names_and_remembered():
    setting, state, (record,) = play(top_two)
    assert setting.runtime.asked[0] == ([0, 2, 4], "train", 0)
    assert [c.clients for c in record.chains] == [(4,), (2,)]
    assert state.loss.tolist()[0] == 0.0  # asked, not chosen: the answer stays
    assert state.loss.tolist()[4] == 4.5  # chosen: the newer report replaces the answer
    assert np.isnan(state.loss[[1, 3]]).all()


def test_candidates_hold_the_model_already():
    _, _, (record,) = play(top_two)
    down = sum(t.bytes for t in record.transfers if t.direction == "down")
    assert down == 3 * S, "power-of-choice: d models down, none sent twice (docs/methods.md 9.1)"
    assert ledger(record)["up", "loss"] == (3 * 4, 3 * 4)
    assert ledger(record)["up", "model"] == (2 * S, 2 * S)
    assert sum(t.multicast for t in record.transfers if t.direction == "down") == S


def test_resend_charges_as_some_papers_do():
    _, _, (record,) = play(top_two, resend=True)
    assert sum(t.bytes for t in record.transfers if t.direction == "down") == (3 + 2) * S


@pytest.mark.parametrize(("layer", "width"), [("all", 9), ("last", 6)])
def test_updates_are_thrown_away(layer, width):
    def rule(view, rng):
        if not view.answers:
            return AskUpdates(np.arange(5), layer)
        assert view.answers[0].values.shape == (5, width)
        assert np.allclose(view.answers[0].values, np.arange(1, 6)[:, None])
        return [0, 1]

    _, state, (record,) = play(rule)
    assert np.allclose(state.models[0], 1.5), "only the two selected clients trained the model"
    assert ledger(record)["down", "probe"] == (5 * S, S)
    assert ledger(record)["up", "gradient"] == (5 * 4 * width, 5 * 4 * width)


def test_a_trial_is_evaluated_everywhere_and_forgotten():
    def rule(view, rng):
        if not view.answers:
            return AskTrial(np.array([1, 3]))
        assert np.allclose(view.answers[0].values, np.arange(5) + 3.0)  # mean of +2 and +4
        return [0, 1]

    _, state, (record,) = play(rule)
    assert np.allclose(state.models[0], 1.5)
    total_down = sum(t.bytes for t in record.transfers if t.direction == "down")
    assert total_down == (2 + 5 + 2) * S, "FedCor: (m + K) s on top of the round itself"
    assert ledger(record)["up", "loss"][0] == 5 * 4


@pytest.mark.parametrize("ask", [AskTrial(np.array([1, 3])), AskUpdates(np.array([1, 3]))])
def test_throw_away_training_takes_batches_in_an_order_of_its_own(ask):
    class Watching(World):
        def train(self, order):
            self.asked.append(order.round)
            return super().train(order)

    world = Watching()
    play(lambda view, rng: [0, 1] if view.answers else ask, world=world, rounds=2)
    rounds = [round for round in world.asked if isinstance(round, int)]
    assert sorted(rounds)[:2] == [1, 2]
    assert len(set(rounds)) == 4, "a client would train on the very batches it is about to see"


def test_absent_clients_cannot_tell_how_a_trial_went():
    class SomeAway(World):
        def available(self, round):
            return np.array([True, True, False, True, False])

    def rule(view, rng):
        if not view.answers:
            return AskTrial(np.array([1, 3]))
        assert np.isnan(view.answers[0].values).tolist() == [False, False, True, False, True]
        return [0, 1]

    _, _, (record,) = play(rule, world=SomeAway())
    assert ledger(record)["up", "loss"][0] == 3 * 4


def test_a_signal_to_noise_ratio_is_charged_when_an_option_asks_for_it():
    @needs(when=lambda options: ["snr"] if options["use_snr"] else [])
    def rule(view, rng, *, use_snr: bool = False):
        return [0, 1]

    assert ("up", "control") not in ledger(play(rule, options={"use_snr": False})[2][0])
    assert ledger(play(rule, options={"use_snr": True})[2][0])["up", "control"] == (8, 8)


def test_reported_losses_are_charged_only_to_rules_that_live_on_them():
    def plain(view, rng):
        return [0, 1]

    @needs(when=lambda options: [] if options["loss_source"] == "exact" else ["loss"])
    def by_loss(view, rng, *, loss_source: str = "piggyback"):
        return [0, 1]

    assert ("up", "loss") not in ledger(play(plain)[2][0])
    assert ledger(play(by_loss)[2][0])["up", "loss"] == (8, 8)
    assert ("up", "loss") not in ledger(play(by_loss, options={"loss_source": "exact"})[2][0])


def test_a_rule_that_never_selects_is_stopped():
    with pytest.raises(RunError, match="asked 9 questions"):
        play(lambda view, rng: AskLoss(np.array([0])))


def test_asking_an_absent_client_is_caught():
    with pytest.raises(RunError, match="not there"):
        play(lambda view, rng: AskLoss(np.array([77])))


def test_learning_rules_see_what_changed():
    seen = []

    @dataclass(frozen=True)
    class Learning(SelectionRule):
        learns_from = "last"

        def choose(self, memory, view, rng):
            return [2, 4], {"rounds": memory.get("rounds", 0) + 1}

        def learn(self, memory, feedback):
            seen.append(feedback)
            return {**memory, "learnt": feedback.clients}

    class Curious(Learning):
        learns_from = "all"
        uses_auxiliary = True

    _, state, _ = play(Learning, rounds=2)
    assert state.memory["selection"]["rounds"] == 2
    assert seen[1].clients.tolist() == [2, 4]
    assert np.allclose(seen[1].delta, [[3] * 6, [5] * 6])
    assert seen[1].head_shape == (2, 2)
    assert seen[0].class_gradients is None
    play(Curious)
    assert seen[-1].delta.shape == (2, 9)
    assert seen[-1].class_gradients.shape == (2, 2)


def test_a_lying_client_is_not_believed():
    assert np.isnan(plausible(np.array([-0.1, 24.0, 1e12, np.inf, np.nan]), 10)).all()
    assert plausible(np.array([0.0, 23.0]), 10).tolist() == [0.0, 23.0]


def test_a_liar_cannot_get_itself_selected_for_ever():
    def liar(client, round, model):
        return Reply(model, 1e9 if client == 3 else 1.0 + 0.1 * ((client + round) % 3), 0.1, 1, 10)

    @needs("loss")
    def greedy(view, rng):
        """Top losses, never-seen clients by the mean: the plainest rule a liar could abuse."""
        loss = np.where(
            np.isnan(view.loss),
            np.nanmean(view.loss) if np.isfinite(view.loss).any() else 0.0,
            view.loss,
        )
        return np.argsort(-(loss + 1e-6 * rng.random(view.size)))[: view.budget]

    counts = np.full((8, 2), 5)
    method = Method(
        selection=named("selection", "greedy", greedy),
        procedure=named("procedure", "p", PROCEDURES["parallel"]),
        aggregation=named("aggregation", "m", AGGREGATIONS["mean"]),
        rounds=60,
        clients_per_round=2,
    )
    *_, (state, _) = run(settle(method, ScriptedRuntime(counts, script=liar), 0))
    assert state.times_selected[3] < 60, (
        "believed, it would be chosen in every round after its first"
    )


def test_a_recipe_without_what_the_rule_needs_is_refused(monkeypatch):
    from fedskew import selection

    @needs("clustering", "signal")
    def clustered(view, rng):
        return [0]

    @needs("latency")
    def hasty(view, rng):
        return [0]

    monkeypatch.setitem(selection.SELECTIONS, "clustered", clustered)
    monkeypatch.setitem(selection.SELECTIONS, "hasty", hasty)
    with pytest.raises(RecipeError, match=r"selection clustered: needs a \[clustering\]"):
        resolve({"selection": {"use": "clustered"}})
    with pytest.raises(RecipeError, match=r"needs to know latencies\. Set devices\.classes"):
        resolve({"selection": {"use": "hasty"}})
    assert resolve({"selection": {"use": "hasty"}, "devices": {"classes": "haccs"}})


def test_a_rule_says_which_loss_clients_report():
    """FedLECC by its options, somebody's own rule by what it declares, and else the recipe."""
    lecc = resolve(load("fedlecc"))
    reported = {
        source: method_of(override(lecc, {"selection.loss_source": source})).job.report_loss
        for source in ("piggyback", "subset", "post", "exact")
    }
    assert reported == {"piggyback": "start", "subset": "start", "post": "end", "exact": "train"}

    @declares(loss_report=lambda options: "end")
    def mine(view, rng):
        return [0]

    assert bind("selection", mine, {}).loss_report == "end"
    assert method_of(resolve({})).job.report_loss == "train"
