"""A rule playing in a world: its questions are answered, its choices checked, results fed back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedskew.loop.method import Named, named
from fedskew.streams import stream
from fedskew.testing.world import HEAD, World
from fedskew.types import (
    Answer,
    Ask,
    AskLoss,
    AskTrial,
    AskUpdates,
    Feedback,
    Ids,
    Ints,
    SelectionRule,
    State,
    View,
    frozen,
)

MAX_QUESTIONS = 8  # as in the loop


@dataclass(frozen=True)
class Played:
    """One round of a rule: what it asked for, whom it chose, and the state left behind."""

    round: int
    asks: tuple[Ask, ...]
    ids: Ints
    state: State


def play(
    rule: Any,
    world: World,
    options: Mapping[str, Any] | None = None,
    *,
    fills_budget: bool = True,
    draws: int = 0,
    between: Callable[[State], State] | None = None,
) -> Iterator[Played]:
    """Play a rule with its options round by round and check every answer on the way.

    ``draws`` chooses another random stream for the rule in the same world; ``between`` is what a
    state goes through from one round to the next.

    >>> from fedskew.selection.uniform import uniform
    >>> [len(played.ids) for played in play(uniform, World(rounds=3))]
    [4, 4, 4]
    """
    stage = named("selection", name_of(rule), rule, options)
    never = np.zeros(world.clients, np.int64)
    state = State(
        np.zeros((1, 1), np.float32), 0, world.seed, np.full(world.clients, np.nan), never, never
    )
    while state.round < world.rounds:
        played = _play_round(stage, world, state, fills_budget, draws)
        yield played
        state = between(played.state) if between else played.state


def name_of(rule: Any) -> str:
    """How a rule is called in messages: by its function or its class."""
    return str(getattr(rule, "__name__", rule))


def expect(kept: object, where: str, what: str) -> None:
    """Raise AssertionError if a promise is not kept; an assert would vanish under ``-O``."""
    if not kept:
        raise AssertionError(f"{where}: {what}")


def _play_round(
    stage: Named[SelectionRule], world: World, state: State, fills_budget: bool, draws: int
) -> Played:
    round = state.round + 1
    answers = tuple[Answer, ...]()
    where = f"{stage.name} in {world}, round {round}"
    memory: Any = state.memory.get("selection", {})
    while True:
        view = _view(stage, world, state, answers)
        lent, copy = _read_only(memory), _read_only(memory)
        rng = stream(world.seed, "select", round, len(answers), draws)
        chosen, memory = stage.rule.choose(lent, view, rng)
        expect(same_memory(lent, copy), where, "changed the memory it was given; return a new dict")
        if not isinstance(chosen, Ask):
            break
        expect(
            len(answers) < MAX_QUESTIONS,
            where,
            f"asked {MAX_QUESTIONS + 1} questions without selecting",
        )
        expect(
            len(chosen.clients), where, f"asked nobody ({type(chosen).__name__} without clients)"
        )
        _check_ids(chosen.clients, view, where, "asked")
        answers = (*answers, _answer(world, chosen, round))
        state = _heard(state, answers[-1])
    ids = _check_ids(chosen, view, where, "chose")
    _check_number(ids, view, where, fills_budget, "clustering" in stage.rule.needs())
    memory = _taught(stage, world, view, ids, memory, where)
    return Played(round, tuple(a.ask for a in answers), ids, _after(state, world, ids, memory))


def _view(
    stage: Named[SelectionRule], world: World, state: State, answers: tuple[Answer, ...]
) -> View:
    needs = frozenset(stage.rule.needs())
    round = state.round + 1
    return View(
        round=round,
        budget=world.budget,
        population=world.population(needs),
        available=world.available_at(round),
        loss=state.loss,
        times_selected=state.times_selected,
        last_selected=state.last_selected,
        signal=world.signal if world.everything or needs & {"signal", "clustering"} else None,
        clustering=world.clustering if world.everything or "clustering" in needs else None,
        answers=answers,
    )


def _answer(world: World, ask: Ask, round: int) -> Answer:
    if isinstance(ask, AskLoss):
        return Answer(ask, world.losses_at(round)[ask.clients])
    if isinstance(ask, AskTrial):
        return Answer(ask, world.losses_at(round, trial=1))
    expect(
        isinstance(ask, AskUpdates),
        "selection",
        f"asked for {type(ask).__name__}, which only procedures may",
    )
    assert isinstance(ask, AskUpdates)
    updates = np.where(world.usable_at(round)[:, None], world.updates_at(round, ask.layer), np.nan)
    return Answer(ask, updates[ask.clients])


def _heard(state: State, answer: Answer) -> State:
    """Losses asked for are remembered, as the loop does."""
    if not isinstance(answer.ask, AskLoss):
        return state
    loss = state.loss.copy()
    loss[answer.ask.clients] = np.where(
        np.isnan(answer.values), loss[answer.ask.clients], answer.values
    )
    return replace(state, loss=loss)


def _check_ids(ids: Any, view: View, where: str, verb: str) -> Ints:
    array = np.asarray(ids)
    listed = array.tolist()
    expect(array.ndim == 1, where, f"{verb} {ids!r}, not a list of client ids")
    expect(
        array.dtype == np.int64 or not listed, where, f"{verb} ids of type {array.dtype}, not int64"
    )
    expect(len(set(listed)) == len(listed), where, f"{verb} a client twice: {listed}")
    expect(
        all(0 <= i < view.size for i in listed),
        where,
        f"{verb} clients that do not exist: {listed}",
    )
    absent = array[~view.available[array]].tolist() if listed else []
    expect(not absent, where, f"{verb} {absent} who are not available")
    return array.astype(np.int64)


def _check_number(ids: Ints, view: View, where: str, fills_budget: bool, by_cluster: bool) -> None:
    num_available = int(view.available.sum())
    right = len(ids) == min(view.budget, num_available) or not fills_budget
    expect(
        right,
        where,
        f"chose {len(ids)} of {num_available} available clients with a budget of {view.budget}",
    )
    grouped = (
        view.available & (view.clustering.labels >= 0)
        if by_cluster and view.clustering
        else view.available
    )
    expect(
        len(ids) or not grouped.any(), where, f"chose nobody of {num_available} available clients"
    )


def _taught(
    stage: Named[SelectionRule], world: World, view: View, ids: Ints, memory: Any, where: str
) -> Any:
    if stage.rule.learns_from is None:
        return memory
    lent, copy = _read_only(memory), _read_only(memory)
    learned = stage.rule.learn(lent, _feedback(world, stage.rule, view, ids))
    expect(
        same_memory(lent, copy), where, "learn changed the memory it was given; return a new dict"
    )
    return learned


def _feedback(world: World, rule: SelectionRule, view: View, ids: Ints) -> Feedback:
    """Of the clients that answered.

    Where nobody reports, every other round nobody answers and in the rest losses are nan.
    """
    usable = world.usable_at(view.round)
    used = ids if world.reports == "none" and view.round % 2 else ids[usable[ids]]
    return Feedback(
        round=view.round,
        clients=used,
        loss=world.losses_at(view.round, trial=2)[used],
        seconds=world.seconds[used],
        examples=view.population.num_examples[used],
        steps=-(-view.population.num_examples[used] // 8),
        delta=world.updates_at(view.round, rule.learns_from or "none")[used],
        head_shape=HEAD,
        class_gradients=world.class_gradients_at(view.round)[used] if rule.uses_auxiliary else None,
    )


def _after(state: State, world: World, ids: Ids, memory: Any) -> State:
    round = state.round + 1
    times = state.times_selected.copy()
    last = state.last_selected.copy()
    times[ids] += 1
    last[ids] = round
    reported = world.losses_at(round, trial=2)
    heard = np.isfinite(reported) & (last == round)
    loss = np.where(heard, reported, state.loss)
    return replace(
        state,
        round=round,
        times_selected=times,
        last_selected=last,
        loss=loss,
        memory={"selection": memory},
    )


def _read_only(memory: Any) -> Any:
    """A copy whose arrays cannot be written to."""
    if isinstance(memory, Mapping):
        return {key: _read_only(value) for key, value in memory.items()}
    return frozen(np.array(memory)) if isinstance(memory, np.ndarray) else memory


def same_memory(one: Any, other: Any) -> bool:
    """Whether two memories hold the same, array by array, type by type.

    >>> same_memory({"a": np.array([1, np.nan])}, {"a": np.array([1, np.nan])})
    True
    >>> same_memory({"a": (1,)}, {"a": [1]})
    False
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return list(one) == list(other) and all(same_memory(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    if isinstance(one, float | np.floating) and isinstance(other, float | np.floating):
        return one == other or (bool(np.isnan(one)) and bool(np.isnan(other)))
    if isinstance(one, list | tuple) and type(one) is type(other):
        return len(one) == len(other) and all(map(same_memory, one, other))
    plain = isinstance(one, bool | int | str | np.integer | np.bool_ | None)
    return bool(plain and one == other)
