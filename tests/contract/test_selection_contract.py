"""What every selection rule promises; :mod:`fedskew.testing` plays them without clients."""

from __future__ import annotations

import inspect
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedskew.recipe import check_options
from fedskew.recipe.schema import options_of
from fedskew.selection import SELECTIONS
from fedskew.testing import WORLDS, World, check_selection, play

RULES: dict[str, Any] = dict(SELECTIONS)
# how many they choose follows from the clusters or the cohort
OWN_NUMBER = {"one_per_cluster", "stratified", "psi_pfl"}
QUICK: dict[str, dict[str, Any]] = {
    "fedcor": {"warm_up": 1, "every": 2, "first_steps": 8, "steps": 4}
}
BY_ID = {
    "round_robin": "goes by the numbers of the clients: that is the rule",
    "fedcls": "leaders are found by scanning client numbers upwards (docs/methods.md 4.4)",
}
# else clients never heard of are equal, and the lower number decides
ALL_DIFFERENT = {"fedlecc": {"loss_source": "exact"}}

every_rule = pytest.mark.parametrize("name", sorted(RULES))
worlds = st.builds(
    World,
    clients=st.integers(1, 14),
    budget=st.integers(1, 16),
    rounds=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
    available=st.sampled_from(["all", "some", "some", "none"]),
    reports=st.sampled_from(["all", "some", "none"]),
    clusters=st.sampled_from(["few", "one", "each", "loose"]),
    everything=st.booleans(),
)


def check(name: str, *of: World, **options: Any) -> None:
    check_selection(
        RULES[name],
        worlds=of,
        fills_budget=name not in OWN_NUMBER,
        **{**QUICK.get(name, {}), **options},
    )


def rounds_of(name: str, world: World, draws: int = 0) -> list[set[int]]:
    options = {**QUICK.get(name, {}), **ALL_DIFFERENT.get(name, {})}
    played = play(RULES[name], world, options, draws=draws, fills_budget=name not in OWN_NUMBER)
    return [set(p.ids.tolist()) for p in played]


def variants() -> list[tuple[str, str, Any]]:
    """Every named alternative of every rule that is not its default."""
    return [
        (name, option.name, value)
        for name, rule in sorted(RULES.items())
        for option in options_of(rule).values()
        if get_origin(option.kind) is Literal
        for value in get_args(option.kind)
        if value != option.default
    ]


@every_rule
def test_the_worlds_that_broke_rules_before(name: str) -> None:
    check(name, *WORLDS)


@pytest.mark.parametrize(("name", "option", "value"), variants())
def test_the_alternatives_keep_the_promises_too(name: str, option: str, value: Any) -> None:
    check(
        name,
        World(reports="some", available="some", clusters="loose", seed=1),
        World(reports="none"),
        **{option: value},
    )


@every_rule
@settings(max_examples=15, deadline=None)
@given(world=worlds)
def test_every_promise_in_any_world(name: str, world: World) -> None:
    check(name, world)


@every_rule
def test_renaming_clients_renames_the_answer(name: str) -> None:
    """Exactly, for a rule that draws nothing; otherwise every client is chosen equally often
    under its old and its new name.
    """
    if name in BY_ID:
        pytest.skip(BY_ID[name])
    world = World(clients=9, budget=3, rounds=4)
    order = np.random.default_rng(0).permutation(world.clients)
    renamed = World(clients=9, budget=3, rounds=4, order=tuple(order.tolist()))
    plain = [rounds_of(name, world, draws) for draws in range(5)]
    if all(rounds == plain[0] for rounds in plain):
        assert [{int(order[i]) for i in ids} for ids in rounds_of(name, renamed)] == plain[0]
        return
    plays, often = 80, np.zeros((2, world.rounds, world.clients))
    for draws in range(plays):
        for row, (those, named) in enumerate([(world, np.arange(world.clients)), (renamed, order)]):
            for round, ids in enumerate(rounds_of(name, those, 100 + draws)):
                often[row, round, named[list(ids)]] += 1
    share = often.mean(axis=0) / plays
    deviation = np.sqrt(np.maximum(share * (1 - share), 1 / plays) * 2 / plays)
    assert (np.abs(often[0] - often[1]) / plays < 4.5 * deviation).all()


@every_rule
def test_the_signature_is_a_recipe_schema(name: str) -> None:
    rule = RULES[name]
    if inspect.isclass(rule):
        supplied = list(inspect.signature(rule.choose).parameters)
        assert supplied == ["self", "memory", "view", "rng"]
    else:
        parameters = list(inspect.signature(rule).parameters.values())
        assert [p.name for p in parameters[:2]] == ["view", "rng"]
        assert all(p.kind is p.KEYWORD_ONLY for p in parameters[2:])
        assert all(p.annotation is not p.empty for p in parameters[2:])
    options = options_of(rule)
    given = {key: option.default for key, option in options.items() if not option.required}
    assert check_options("selection", options, given) == given
    assert inspect.getdoc(rule)
