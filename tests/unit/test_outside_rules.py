"""A rule in somebody's own file gets everything a shipped rule has, without touching the package:
named in a recipe as ``module:Class``, with options, memory, hooks, and what the loop must know.
"""

from __future__ import annotations

import sys
import textwrap

import numpy as np
import pytest

from fedskew.compare.contenders import is_personalised
from fedskew.errors import RecipeError
from fedskew.loop.federation import run, settle
from fedskew.recipe import method_of, resolve
from fedskew.runtime.scripted import ScriptedRuntime

COUNTS = np.array([[9, 1], [1, 9], [5, 5], [7, 3]])
RULES = '''
    from dataclasses import dataclass, replace

    import numpy as np

    from fedskew.types import (
        AggregationRule, AskLoss, Chain, Plan, ProcedureRule, SelectionRule, declares, needs,
    )


    @dataclass(frozen=True)
    class WorstFirst(SelectionRule):
        """Asks for losses, takes the largest, and remembers whom it took."""

        skip: int = 0
        learns_from = "all"
        loss_report = "end"

        def needs(self):
            return ("loss",)

        def choose(self, memory, view, rng):
            if not view.answers:
                return AskLoss(np.flatnonzero(view.available)), memory
            order = np.argsort(-view.answers[0].values, kind="stable")
            clients = view.answers[0].ask.clients[order]
            return clients[self.skip : self.skip + view.budget], memory

        def learn(self, memory, feedback):
            return {"taught": memory.get("taught", 0) + len(feedback.clients)}


    @dataclass(frozen=True)
    class OneEach(ProcedureRule):
        """A model per client, which a look back doubles."""

        first: float = 1.0
        several_models = True
        looks_back = True

        def begin(self, fresh, size):
            return np.full((size, len(fresh(0))), self.first, np.float32)

        def plan(self, memory, ids, view, rng):
            chains = tuple(Chain(int(c), (int(c),)) for c in ids)
            return Plan(chains, home=np.arange(view.size)), {"rounds": memory.get("rounds", 0) + 1}

        def after(self, memory, seen):
            return 2 * seen.models, seen.home, memory

        def rehome(self, memory, num_slots):
            return None


    @dataclass(frozen=True)
    class Relay(ProcedureRule):
        hands_on = True

        def plan(self, memory, ids, view, rng):
            return Plan((Chain(0, tuple(int(c) for c in ids)),)), memory


    @dataclass(frozen=True)
    class Cautious(AggregationRule):
        """Goes part of the way, with a correction and a vector more on every way."""

        share: float = 0.5
        corrects = True
        extra_models = 2

        def needs(self):
            return ("steps",)

        def merge(self, memory, model, ends):
            moved = model + np.float32(self.share) * (ends.params.mean(axis=0) - model)
            return moved, {"merged": memory.get("merged", 0) + 1}

        def corrections(self, memory, clients, num_weights):
            return np.full((len(clients), num_weights), memory.get("merged", 0), np.float32)

        def job(self, job):
            return replace(job, prox_mu=0.25)


    @declares(several_models=True)
    def by_parity(ids, view, rng):
        return Plan(tuple(Chain(int(c) % 2, (int(c),)) for c in ids), home=np.arange(view.size) % 2)


    @declares(hands_on=True)
    def one_chain(ids, view, rng):
        return Plan((Chain(0, tuple(int(c) for c in ids)),))


    @needs("pace")
    @declares(hands_on=True)
    def slowest_last(ids, view, rng):
        order = np.asarray(ids)[np.argsort(view.pace.compute[ids], kind="stable")]
        return Plan((Chain(0, tuple(int(c) for c in order)),))


    @needs("pace")
    def quickest(view, rng):
        return np.argsort(view.pace.compute)[: view.budget]


    class NoDataclass(SelectionRule):
        def choose(self, memory, view, rng):
            return [], memory


    @dataclass(frozen=True)
    class Unfinished(SelectionRule):
        skip: int = 0


    @dataclass(frozen=True)
    class WrongStage(AggregationRule):
        def merge(self, memory, model, ends):
            return model, memory
'''


@pytest.fixture(autouse=True)
def my_rules(tmp_path, monkeypatch):
    (tmp_path / "my_own_rules.py").write_text(textwrap.dedent(RULES))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_own_rules", None)


class Watching(ScriptedRuntime):
    """Notes what clients are told to add to their gradients."""

    def __init__(self):
        super().__init__(COUNTS)
        self.corrections = []

    def train(self, order):
        self.corrections.append(order.corrections)
        return super().train(order)


def play(recipe, rounds=2):
    numbers = {"rounds": rounds, "clients_per_round": 2, "min_ok": 0}
    resolved = resolve({"run": numbers, **recipe})
    runtime = Watching()
    method = method_of(resolved)
    played = list(run(settle(method, runtime, 0)))
    return resolved, method, runtime, played


def test_a_selection_rule_asks_remembers_learns_and_is_charged():
    recipe = {"selection": {"use": "my_own_rules:WorstFirst", "skip": 1}}
    resolved, method, _, played = play(recipe)
    assert resolved["selection"] == {"use": "my_own_rules:WorstFirst", "skip": 1}
    assert method.job.report_loss == "end"
    state, record = played[-1]
    assert state.memory["selection"] == {"taught": 4}
    kinds = {(t.direction, t.kind) for t in record.transfers}
    assert ("up", "loss") in kinds
    assert [t.bytes for t in record.transfers if t.kind == "loss"] == [4 * 4, 2 * 4]
    defaults = resolve({"selection": {"use": "my_own_rules:WorstFirst"}})
    assert defaults["selection"]["skip"] == 0


def test_a_procedure_keeps_models_of_its_own_and_says_so():
    recipe = {"procedure": {"use": "my_own_rules:OneEach", "first": 3.0}}
    resolved, _, _, played = play(recipe)
    assert is_personalised(resolved)
    assert (played[0][0].models == 3.0).all()
    assert played[-1][0].models.shape == (4, 6)
    assert played[-1][0].memory["procedure"] == {"rounds": 2}
    untouched = set(range(4)) - {c for _, r in played for chain in r.chains for c in chain.clients}
    assert all((played[-1][0].models[c] == 3.0 * 4).all() for c in untouched), "doubled twice"
    assert np.isnan(played[-1][1].accuracy)


def test_an_aggregation_rule_corrects_changes_the_job_and_pays_for_its_vectors():
    recipe = {"aggregation": {"use": "my_own_rules:Cautious", "share": 0.1}}
    _, method, runtime, played = play(recipe)
    assert method.job.prox_mu == 0.25
    assert [float(c.max()) for c in runtime.corrections] == [0.0, 1.0]
    sent = {(t.direction, t.kind): t.bytes for t in played[1][1].transfers}
    assert sent["down", "control"] == 2 * sent["down", "model"]
    assert sent["up", "control"] == 2 * sent["up", "model"] or sent["up", "control"] == 2 * 4


@pytest.mark.parametrize("use", ["my_own_rules:Relay", "my_own_rules:one_chain"])
def test_who_hands_a_model_on_cannot_be_combined_with_corrections(use):
    with pytest.raises(RecipeError, match="no meaning where clients train on each other's models"):
        resolve({"procedure": {"use": use}, "aggregation": {"use": "my_own_rules:Cautious"}})
    with pytest.raises(RecipeError, match="no meaning where clients train on each other's models"):
        resolve({"procedure": {"use": use}, "aggregation": {"use": "scaffold"}})


def test_a_plain_function_can_say_that_it_keeps_several_models():
    resolved, _, _, played = play({"procedure": {"use": "my_own_rules:by_parity"}})
    assert is_personalised(resolved)
    assert len(played[-1][0].models) == 2


def test_a_procedure_may_see_what_turns_take_and_a_selection_may_not():
    recipe = {"procedure": {"use": "my_own_rules:slowest_last"}}
    _, _, _, played = play(recipe, rounds=1)
    (chain,) = played[-1][1].chains
    assert len(chain.clients) == 2
    with pytest.raises(RecipeError, match="told to procedures"):
        resolve({"selection": {"use": "my_own_rules:quickest"}})


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ("NoDataclass", "no dataclass that derives from SelectionRule"),
        ("Unfinished", "has no method choose"),
        ("WrongStage", "no dataclass that derives from SelectionRule"),
        ("Nobody", "cannot import"),
    ],
)
def test_what_is_no_rule_is_refused_with_the_reason(use, message):
    with pytest.raises(RecipeError, match=message):
        resolve({"selection": {"use": f"my_own_rules:{use}"}})


def test_unknown_and_wrong_options_are_refused():
    with pytest.raises(RecipeError, match="Did you mean 'skip'"):
        resolve({"selection": {"use": "my_own_rules:WorstFirst", "skipp": 1}})
    with pytest.raises(RecipeError, match=r"selection\.skip"):
        resolve({"selection": {"use": "my_own_rules:WorstFirst", "skip": "two"}})
