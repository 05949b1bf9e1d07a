"""What a rule may ask for before it decides, how it is answered, and what that costs.

A selection rule or a procedure returns a request instead of its decision; the loop answers, charges
bytes and time, and consults the rule again with the answer in ``view.answers``. Requests are data,
so a rule stays a function of what it sees, on one machine as on a fleet. Every request has one
handler, which gives the answer, its bytes and its time together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from fedskew.accounting.traffic import loss_transfers, probe_transfers, slot_transfers
from fedskew.errors import RunError
from fedskew.loop.costs import NOTHING, looking_cost, throw_away_cost
from fedskew.loop.merging import merge_slots
from fedskew.loop.method import Setting
from fedskew.loop.probe import head_slices
from fedskew.loop.timing import late_clients
from fedskew.loop.training import score_clients, train_in_time, train_plan
from fedskew.loop.trust.rounds import believed
from fedskew.types import (
    Answer,
    Ask,
    AskLoss,
    AskShares,
    AskSlots,
    AskTrial,
    AskUpdates,
    Chain,
    Cost,
    Floats,
    Ints,
    Memory,
    Params,
    Plan,
    ScoreOrder,
    State,
    TrainOrder,
    Transfer,
    loss_limit,
)

MAX_QUESTIONS = 8  # a rule that still asks then is broken
TRIAL_ROUNDS = 1 << 30  # batch orders of throw-away training: those of no real round
AT_ONCE = 64  # clients whose whole models are in memory at the same time


@dataclass(frozen=True)
class Answered:
    """An answer, and what it took."""

    answer: Answer
    state: State  # losses that were asked for are remembered in it
    transfers: tuple[Transfer, ...]
    cost: Cost
    holders: frozenset[int] = frozenset()  # clients that now hold the present model


@dataclass(frozen=True)
class Decision:
    """What a rule decided, and what all its questions took."""

    value: Any
    memory: Memory
    state: State
    answers: tuple[Answer, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    cost: Cost = NOTHING
    holders: frozenset[int] = frozenset()


# What a rule says to a state, the answers so far, its memory and the number of the turn.
Consult: TypeAlias = Callable[[State, tuple[Answer, ...], Memory, int], tuple[Any, Memory]]


def decide(
    setting: Setting, state: State, round: int, where: str, memory: Memory, consult: Consult
) -> Decision:
    """Consult a rule and answer its questions until it decides."""
    so_far = Decision(None, memory, state)
    for turn in range(MAX_QUESTIONS + 1):
        value, memory = consult(so_far.state, so_far.answers, so_far.memory, turn)
        so_far = replace(so_far, value=value, memory=memory)
        if not isinstance(value, Ask):
            return so_far
        heard = HANDLERS[type(value)](setting, so_far.state, value, round)
        so_far = replace(
            so_far,
            state=heard.state,
            answers=(*so_far.answers, heard.answer),
            transfers=so_far.transfers + heard.transfers,
            cost=so_far.cost + heard.cost,
            holders=so_far.holders | heard.holders,
        )
    what = f"asked {MAX_QUESTIONS + 1} questions in round {round}"
    raise RunError(where, what, "Decide at last")


# ---------------------------------------------------------------- one handler per request


def _losses(setting: Setting, state: State, ask: AskLoss, round: int) -> Answered:
    """The present model on everybody's training data: it goes down, one number comes up."""
    values = losses_at(setting, state, ask.clients, state.models, round, ask.max_examples)
    known = state.loss.copy()
    known[ask.clients] = np.where(np.isnan(values), known[ask.clients], values)
    size = setting.description.layout.bytes
    return Answered(
        Answer(ask, values),
        replace(state, loss=known),
        loss_transfers(len(ask.clients), size, _slots_of(state, ask.clients)),
        looking_cost(setting, ask.clients, max_examples=ask.max_examples),
        frozenset(ask.clients.tolist()),
    )


def _updates(setting: Setting, state: State, ask: AskUpdates, round: int) -> Answered:
    """Everybody trains from the present model and sends what changed, of one layer or of all."""
    layout, job = setting.description.layout, setting.method.job_at(round)
    parts = [slice(0, layout.size)]
    if ask.layer == "last":
        parts = head_slices(layout, setting.description.num_classes)
    width = sum(part.stop - part.start for part in parts)
    updates: Floats = np.full((len(ask.clients), width), np.nan)
    home, up = _homes(state, ask.clients), 4 * width
    late = late_clients(setting, ask.clients, job, down=layout.bytes, up=up)
    silent: set[int] = set()
    for begin in range(0, len(ask.clients), AT_ONCE):
        piece = slice(begin, begin + AT_ONCE)
        order = TrainOrder(
            ask.clients[piece],
            state.models,
            home[piece],
            job,
            setting.seed,
            TRIAL_ROUNDS + round,
        )
        replies = train_in_time(setting, order, late)
        deltas = replies.params - state.models[home[piece]]
        rows = np.concatenate([deltas[:, part] for part in parts], axis=1)
        updates[piece] = np.where(replies.ok[:, None], rows, np.nan)
        silent.update(ask.clients[piece][~replies.sent].tolist())
    asked, slots = len(ask.clients), _slots_of(state, ask.clients)
    return Answered(
        Answer(ask, updates),
        state,
        probe_transfers(asked, asked - len(silent), layout.bytes, upload_bytes=up, slots=slots),
        throw_away_cost(setting, ask.clients, job, up=up, silent=silent),
        frozenset(ask.clients.tolist()),
    )


def _trial(setting: Setting, state: State, ask: AskTrial, round: int) -> Answered:
    """A round that is thrown away, then the loss of its outcome at everybody who can be asked."""
    outcome, silent = _play_trial(setting, state, ask, round)
    population, size = setting.description.population, setting.description.layout.bytes
    present = np.flatnonzero(setting.runtime.available(round) & (population.num_examples > 0))
    values = np.full(population.size, np.nan)
    values[present] = losses_at(setting, state, present, outcome, round, 0)
    asked, slots = len(ask.clients), _slots_of(state, ask.clients)
    trained = probe_transfers(asked, asked - len(silent), size, slots=slots)
    job = setting.method.job_at(round)
    training = throw_away_cost(setting, ask.clients, job, up=size, silent=silent)
    return Answered(
        Answer(ask, values),
        state,
        trained + loss_transfers(len(present), size, _slots_of(state, present)),
        training + looking_cost(setting, present),
    )


def _play_trial(
    setting: Setting, state: State, ask: AskTrial, round: int
) -> tuple[Params, set[int]]:
    """The models after a round that is thrown away, and who sent nothing."""
    home = _homes(state, ask.clients)
    pairs = zip(home, ask.clients, strict=True)
    plan = Plan(tuple(Chain(int(slot), (int(c),)) for slot, c in pairs))
    memory = dict(state.memory.get("aggregation", {}))
    job = setting.method.job_at(round)
    steering = state.memory.get("procedure")
    runners = train_plan(
        setting,
        plan,
        state.models,
        TRIAL_ROUNDS + round,
        memory,
        job=job,
        steering=steering,
        signal=state.signal,
    )
    merged = merge_slots(
        setting, plan, state.models, runners, memory, round, state.home, state.signal
    )
    return merged.models, {client for runner in runners for client in runner.silent}


def _slot_losses(setting: Setting, state: State, ask: AskSlots, round: int) -> Answered:
    """Models of several slots on everybody's training data. Whoever compared them holds them."""
    values = slot_losses(setting, state.models, ask.clients, ask.slots)
    return replace(_compared(setting, state, ask, values), holders=frozenset(ask.clients.tolist()))


def _shares(setting: Setting, state: State, ask: AskShares, round: int) -> Answered:
    """Which share of its examples each slot's model fits best. docs/methods.md 9.1 sends FedSoft's
    centres to its participants a second time, so nobody counts as a holder.
    """
    values = setting.runtime.best_fit(ask.clients, state.models[ask.slots])
    return _compared(setting, state, ask, values)


def _compared(
    setting: Setting, state: State, ask: AskSlots | AskShares, values: Floats
) -> Answered:
    size, slots = setting.description.layout.bytes, len(ask.slots)
    transfers = slot_transfers(len(ask.clients), slots, size)
    cost = looking_cost(setting, ask.clients, models=slots)
    return Answered(Answer(ask, values), state, transfers, cost)


HANDLERS: dict[type, Callable[[Setting, State, Any, int], Answered]] = {
    AskLoss: _losses,
    AskUpdates: _updates,
    AskTrial: _trial,
    AskSlots: _slot_losses,
    AskShares: _shares,
}


# ---------------------------------------------------------------- losses


def plausible(losses: Floats, num_classes: int) -> Floats:
    """Losses as a rule may use them: below 0 or above :func:`fedskew.types.loss_limit` is never
    reported. Without the bound, one that reports 1e9 would lead every ranking for ever.

    >>> plausible(np.array([0.5, -1.0, 1e9, np.inf]), 10)
    array([0.5, nan, nan, nan])
    """
    with np.errstate(invalid="ignore"):
        fits = (losses >= 0) & (losses <= loss_limit(num_classes))
    return np.where(fits, losses, np.nan)


def losses_at(
    setting: Setting, state: State, clients: Ints, models: Params, round: int, max_examples: int
) -> Floats:
    """(n,) plausible losses of each client's model on its own training data, as they count."""
    home = _homes(state, clients)
    order = ScoreOrder(clients, models, home, "train", max_examples, setting.seed, round)
    scores = score_clients(setting, state, order)
    reported = plausible(scores.loss, setting.description.num_classes)
    return believed(setting, state, clients, reported)


def slot_losses(setting: Setting, models: Params, clients: Ints, slots: Ints) -> Floats:
    """(n, number of slots) plausible mean losses of these models on these clients' training data;
    nan: nothing to go by.
    """
    n, s = len(clients), len(slots)
    order = ScoreOrder(np.repeat(clients, s), models, np.tile(slots, n), "train")
    scores = setting.runtime.score(order)
    return plausible(scores.loss.reshape(n, s), setting.description.num_classes)


def _slots_of(state: State, clients: Ints) -> int:
    """In how many slots these clients live: as many transmissions reach them all."""
    return len(np.unique(_homes(state, clients)))


def _homes(state: State, clients: Ints) -> Ints:
    """(n,) the slot each of these clients lives in."""
    return np.zeros(len(clients), np.int64) if state.home is None else state.home[clients]
