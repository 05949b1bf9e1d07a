"""Model slots: what they begin with, what a procedure does about them after a round, and which one
each client lives in.

A procedure with one model needs nothing of this. One that keeps a model per group or per client has
the hooks ``begin``, ``after`` or ``rehome`` of :class:`fedskew.types.ProcedureRule`; whatever it
remembers lies in ``State``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedskew.errors import RecipeError, RunError
from fedskew.loop.asking import slot_losses
from fedskew.loop.method import Setting
from fedskew.loop.probe import head_slices
from fedskew.loop.training import Runner
from fedskew.streams import seed_for
from fedskew.types import Aftermath, Ints, Memory, Params, Plan, State


def begin_models(setting: Setting) -> Params:
    """(S, D) the models before the first round: the one initial model, or what the procedure
    makes of fresh ones.
    """

    def fresh(number: int) -> Params:
        seed = setting.seed if number == 0 else seed_for(setting.seed, "fresh", number)
        return setting.runtime.initial(seed)

    name, rule = setting.method.procedure.name, setting.method.procedure.rule
    begun = rule.begin(fresh, setting.description.population.size)
    if begun is None:
        return setting.initial[None]
    models = np.array(begun, np.float32)
    # frozen parts that never travel are again those of the run's own seed
    setting.runtime.initial(setting.seed)
    if models.ndim != 2 or models.shape[1:] != setting.initial.shape or not len(models):
        what = f"began with models of shape {models.shape}"
        raise RunError(f"procedure {name}", what, f"Return (S, {len(setting.initial)})")
    return models


def with_slots(models: Params, initial: Params, plan: Plan) -> Params:
    """Room for every slot the plan names; a new slot starts from the initial model."""
    slots = [chain.slot for chain in plan.chains]
    if plan.home is not None:
        slots += plan.home.tolist()
    missing = 1 + max(slots, default=0) - len(models)
    if missing <= 0:
        return models
    return np.concatenate([models, np.repeat(initial[None], missing, axis=0)])


def after_round(
    setting: Setting,
    state: State,
    plan: Plan,
    before: Params,
    models: Params,
    runners: Sequence[Runner],
    memory: Memory,
) -> tuple[Params, Ints | None, Memory]:
    """The models, everybody's slot and the procedure's memory after it saw the merged round."""
    name, rule = setting.method.procedure.name, setting.method.procedure.rule
    home = state.home if plan.home is None else plan.home
    if not rule.looks_back:
        return models, home, memory
    seen = aftermath_of(setting, state.round + 1, plan, before, models, runners, home)
    models, home, memory = rule.after(memory, seen)
    models = np.asarray(models, np.float32)
    size = setting.description.population.size
    if home is not None and not _is_legal(home, size, len(models)):
        what = "left a client without a model"
        raise RunError(f"procedure {name}", what, "Return one slot number per client")
    return models, home, memory


def _is_legal(home: Ints, size: int, num_slots: int) -> bool:
    slots = np.asarray(home)
    return len(slots) == size and bool(((slots >= 0) & (slots < num_slots)).all())


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
    """Every client moves to the slot with the lowest loss on its training data, ties to the
    first; never on test data.

    A client without training examples, or whose losses make no sense, stays where it is.
    """
    memory = state.memory.get("procedure", {})
    allowed = setting.method.procedure.rule.rehome(memory, len(state.models))
    if allowed is None:
        return state
    slots = np.asarray(allowed, np.int64)
    everyone = np.arange(setting.description.population.size)
    losses = slot_losses(setting, state.models, everyone, slots)
    old = np.full(len(everyone), slots[0]) if state.home is None else state.home
    known = ~np.isnan(losses).all(axis=1)
    best = slots[np.nan_to_num(losses, nan=np.inf).argmin(axis=1)]
    return replace(state, home=np.where(known, best, old))
