"""What every procedure promises, whatever it computes: everyone selected trains exactly once,
and nothing given is changed.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedskew.procedure import PROCEDURES
from fedskew.recipe import check_options
from fedskew.recipe.schema import options_of
from fedskew.testing import World
from fedskew.types import Answer, Ask, AskShares, Plan, ProcedureRule, View, bind

SMALL = {"theta_classes": 2}  # worlds have 4 classes: theta = 8.5 cannot be reached there
DRAWS_ITSELF = {"fedsoft"}  # by importance to each centre, instead of the selection
SPECIAL: dict[str, list[dict[str, Any]]] = {
    "chains": [
        {"chains": 0, **SMALL},
        {"chains": 0, "groups": "balanced", **SMALL},
        {"chains": 3, "groups": "balanced"},
    ],
    "adaptive": [{"dial": True, "refresh": 1, **SMALL}, {"pilot_rounds": 3, "required_loss": 0.5}],
}


def variants() -> list[tuple[str, dict[str, Any]]]:
    """Every procedure with its defaults, with every named alternative, and in its special modes."""
    found: list[tuple[str, dict[str, Any]]] = []
    for name, rule in sorted(PROCEDURES.items()):
        options = options_of(rule)
        base = SMALL if "theta_classes" in options else {}
        named = [
            (o.name, v)
            for o in options.values()
            if get_origin(o.kind) is Literal
            for v in get_args(o.kind)
        ]
        found += [
            (name, base),
            *((name, {**base, key: value}) for key, value in named),
            *((name, o) for o in SPECIAL.get(name, [])),
        ]
    return found


def planned(rule: ProcedureRule, ids: Any, view: View, seed: int, memory: Any) -> tuple[Plan, Any]:
    """The plan after all questions, answered by seeded guesses (one client does not answer)."""
    for turn in range(5):
        rng = np.random.default_rng([seed, view.round, turn])
        plan, memory = rule.plan(memory, ids, view, rng)
        if isinstance(plan, Plan):
            return plan, memory
        assert isinstance(plan, Ask)
        guesses = np.random.default_rng([seed, 9]).random((len(plan.clients), len(plan.slots)))
        if isinstance(plan, AskShares):
            guesses /= guesses.sum(axis=1, keepdims=True)
        guesses[1:2] = np.nan
        view = replace(view, answers=(*view.answers, Answer(plan, guesses)))
    raise AssertionError("asked five times")


def facts(plan: Plan) -> tuple[Any, ...]:
    return plan.chains, plan.relay, plan.broken, None if plan.home is None else plan.home.tolist()


def plays(name: str, options: dict[str, Any], world: World) -> list[tuple[Plan, Any]]:
    """The plans of a few rounds and what was remembered; checks every promise on the way."""
    rule = bind("procedure", PROCEDURES[name], options)
    memory: Any = {}
    last, loss, found = np.zeros(world.clients, np.int64), np.full(world.clients, np.nan), []
    for round in range(1, world.rounds + 1):
        there = world.available_at(round)
        view = View(
            round,
            world.budget,
            world.population(frozenset()),
            there,
            loss,
            last,
            last,
            world.signal,
            world.clustering,
        )
        ids = np.random.default_rng(round).permutation(np.flatnonzero(there))[: world.budget]
        given_ids, given_memory = ids.copy(), copy.deepcopy(memory)
        plan, remembered = planned(rule, ids, view, world.seed, memory)
        if name not in DRAWS_ITSELF:
            assert sorted(plan.clients) == sorted(ids.tolist()), "not every client exactly once"
        assert len(set(plan.clients)) == len(plan.clients)
        assert there[list(plan.clients)].all()
        assert all(chain.clients for chain in plan.chains), "a chain without clients"
        np.testing.assert_equal(ids, given_ids)
        np.testing.assert_equal(memory, given_memory)
        found.append((plan, remembered))
        memory = remembered
        last, loss = (
            np.where(np.isin(np.arange(world.clients), ids), round, last),
            world.losses_at(round),
        )
    return found


worlds = st.builds(
    World,
    clients=st.integers(1, 14),
    budget=st.integers(1, 16),
    rounds=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    available=st.sampled_from(["all", "some", "none"]),
    reports=st.sampled_from(["all", "some", "none"]),
    clusters=st.sampled_from(["few", "one", "each", "loose"]),
)


@pytest.mark.parametrize(("name", "options"), variants())
@settings(max_examples=12, deadline=None)
@given(world=worlds)
def test_every_promise_in_any_world(name: str, options: dict[str, Any], world: World) -> None:
    first, again = plays(name, options, world), plays(name, options, world)
    assert [facts(plan) for plan, _ in first] == [facts(plan) for plan, _ in again], (
        "another plan from the same stream"
    )
    np.testing.assert_equal([memory for _, memory in first], [memory for _, memory in again])


@pytest.mark.parametrize(("name", "options"), variants())
@pytest.mark.parametrize("clients", [0, 1])
def test_nobody_and_one_client(name: str, options: dict[str, Any], clients: int) -> None:
    world = World(clients=1, budget=1, rounds=2, available="all" if clients else "none")
    assert [len(plan.chains) for plan, _ in plays(name, options, world)] == [clients] * 2


@pytest.mark.parametrize("name", sorted(PROCEDURES))
def test_the_signature_is_a_recipe_schema(name: str) -> None:
    rule = PROCEDURES[name]
    if inspect.isclass(rule):
        supplied = list(inspect.signature(rule.plan).parameters)
        assert supplied == ["self", "memory", "ids", "view", "rng"]
    else:
        parameters = list(inspect.signature(rule).parameters.values())
        assert [p.name for p in parameters[:3]] == ["ids", "view", "rng"]
        assert all(p.kind is p.KEYWORD_ONLY for p in parameters[3:])
        assert all(p.annotation is not p.empty for p in parameters[3:])
    options = options_of(rule)
    defaults = {key: option.default for key, option in options.items()}
    assert check_options("procedure", options, defaults) == defaults
    assert set(bind("procedure", rule, defaults).needs()) <= {"signal", "clustering", "loss"}
    assert inspect.getdoc(rule)
