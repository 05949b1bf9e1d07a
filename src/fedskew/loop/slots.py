"""Model slots: what they begin with, what a procedure asks and does about them, and which one each
client lives in.

A procedure with one model needs nothing of this. One that keeps a model per group or per client
declares what it wants to be called for (``begin``, ``after``, ``rehome`` of
:class:`fedskew.types.Stateful`); whatever it remembers lies in ``State``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedskew.errors import RecipeError, RunError
from fedskew.loop.asking import MAX_QUESTIONS, answer, slot_losses
from fedskew.loop.method import Setting
from fedskew.loop.probe import head_slices
from fedskew.loop.training import Runner
from fedskew.streams import seed_for, stream
from fedskew.types import (
    Aftermath,
    Answer,
    Ask,
    Ints,
    Memory,
    Params,
    Plan,
    State,
    Stateful,
    Transfer,
    View,
)


def begin_models(setting: Setting) -> Params:
    """(S, D) the models before the first round: the one initial model, or what the procedure
    makes of fresh ones.
    """
    rule = setting.method.procedure
    if not isinstance(rule.function, Stateful) or rule.function.begin is None:
        return setting.initial[None]

    def fresh(number: int) -> Params:
        seed = setting.seed if number == 0 else seed_for(setting.seed, "fresh", number)
        return setting.runtime.initial(seed)

    size = setting.description.population.size
    models = np.array(rule.function.begin(fresh, size, **rule.options), np.float32)
    # frozen parts that never travel are again those of the run's own seed
    setting.runtime.initial(setting.seed)
    if models.ndim != 2 or models.shape[1:] != setting.initial.shape or not len(models):
        where = f"procedure {rule.name}"
        raise RunError(
            where,
            f"began with models of shape {models.shape}",
            f"Return (S, {len(setting.initial)})",
        )
    return models


@dataclass(frozen=True)
class Planned:
    """A plan, and what it took to find it."""

    plan: Any  # not checked yet
    memory: Memory
    answers: tuple[Answer, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    holders: frozenset[int] = frozenset()  # clients that hold the models of their slots already


def plan_round(setting: Setting, state: State, ids: Ints, view: View) -> Planned:
    """Ask the procedure; answer its questions until it gives a plan."""
    rule, memory = setting.method.procedure, state.memory.get("procedure", {})
    answers: tuple[Answer, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    holders: set[int] = set()
    for turn in range(MAX_QUESTIONS + 1):
        keys = (view.round, turn) if turn else (view.round,)
        rng = stream(setting.seed, "procedure", *keys)
        plan, memory = rule(ids, replace(view, answers=answers), rng, memory=memory)
        if not isinstance(plan, Ask):
            return Planned(plan, memory, answers, transfers, frozenset(holders))
        given, state, charge, reached = answer(setting, state, plan, view.round)
        answers, transfers, holders = (*answers, given), transfers + charge, holders | reached
    raise RunError(
        f"procedure {rule.name}",
        f"asked {MAX_QUESTIONS + 1} questions in round {view.round}",
        "Plan at last",
    )


def look_after(
    setting: Setting,
    state: State,
    plan: Plan,
    before: Params,
    models: Params,
    runners: Sequence[Runner],
    memory: Memory,
) -> tuple[Params, Ints | None, Memory]:
    """Let the procedure see the merged round: the models, everybody's slot and the procedure's
    memory after it.
    """
    rule, home = setting.method.procedure, state.home if plan.home is None else plan.home
    if not isinstance(rule.function, Stateful) or rule.function.after is None:
        return models, home, memory
    seen = aftermath_of(setting, state.round + 1, plan, before, models, runners, home)
    models, home, memory = rule.function.after(memory, seen, **rule.options)
    models = np.asarray(models, np.float32)
    size = setting.description.population.size
    if home is not None and (
        len(home) != size or min(home, default=0) < 0 or max(home, default=0) >= len(models)
    ):
        raise RunError(
            f"procedure {rule.name}",
            "left a client without a model",
            "Return one slot number per client",
        )
    return models, home, memory


def aftermath_of(
    setting: Setting,
    round: int,
    plan: Plan,
    before: Params,
    models: Params,
    runners: Sequence[Runner],
    home: Ints | None,
) -> Aftermath:
    """The usable replies of a round as a procedure wants them."""
    replies = [
        (chain.slot, r, c) for chain, r in zip(plan.chains, runners, strict=True) for c in r.loss
    ]
    layout, empty = setting.description.layout, models[:0]
    try:
        head = tuple(head_slices(layout, setting.description.num_classes))
    except RecipeError:  # a model without an output layer
        head = ()
    return Aftermath(
        round=round,
        plan=plan,
        before=before,
        models=models,
        home=np.zeros(setting.description.population.size, np.int64) if home is None else home,
        clients=np.array([c for _, _, c in replies], np.int64),
        slots=np.array([slot for slot, _, _ in replies], np.int64),
        received=np.stack([r.received[c] for _, r, c in replies]) if replies else empty,
        returned=np.stack([r.returned[c] for _, r, c in replies]) if replies else empty,
        examples=np.array([r.work[c][0] for _, r, c in replies], np.int64),
        loss=np.array([r.loss[c] for _, r, c in replies], np.float64),
        num_weights=layout.num_weights,
        head=head,
    )


def rehome(setting: Setting, state: State) -> State:
    """Every client moves to the slot with the lowest loss on its training data, ties to the first;
    never on test data.

    A client without training examples, or whose losses make no sense, stays where it is.
    """
    rule = setting.method.procedure
    if not isinstance(rule.function, Stateful) or rule.function.rehome is None:
        return state
    memory = state.memory.get("procedure", {})
    slots = np.asarray(rule.function.rehome(memory, len(state.models), **rule.options), np.int64)
    everyone = np.arange(setting.description.population.size)
    losses = slot_losses(setting, state.models, everyone, slots)
    old = np.full(len(everyone), slots[0]) if state.home is None else state.home
    known = ~np.isnan(losses).all(axis=1)
    best = slots[np.nan_to_num(losses, nan=np.inf).argmin(axis=1)]
    return replace(state, home=np.where(known, best, old))
