"""What a selection rule may ask for before it selects, how it is answered, and what that costs.

A rule returns a request instead of client ids; the loop answers, charges the traffic, and calls the
rule again with the answer in ``view.answers``. Requests are data, so a rule stays a function of
what it sees, on one machine as on a fleet.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedskew.accounting.traffic import loss_transfers, probe_transfers, slot_transfers
from fedskew.loop.method import Setting
from fedskew.loop.probe import head_slices
from fedskew.loop.training import merge_slots, score_clients, train_plan
from fedskew.types import (
    Answer,
    Ask,
    AskLoss,
    AskShares,
    AskSlots,
    AskTrial,
    AskUpdates,
    Chain,
    Floats,
    Ints,
    Params,
    Plan,
    ScoreOrder,
    State,
    TrainOrder,
    Transfer,
)

MAX_QUESTIONS = 8  # a rule that still asks then is broken
TRIAL_ROUNDS = 1 << 30  # batch orders of throw-away training: those of no real round


def plausible(losses: Floats, num_classes: int) -> Floats:
    """Losses as a rule may use them: below 0 or above 10 ln C (at least 23) counts as never
    reported.

    A mean cross-entropy above that is a broken or a lying client. Without the bound, one that
    reports 1e9 would lead every ranking for ever.

    >>> plausible(np.array([0.5, -1.0, 1e9, np.inf]), 10)
    array([0.5, nan, nan, nan])
    """
    limit = 10 * np.log(max(num_classes, 10))
    with np.errstate(invalid="ignore"):
        return np.where((losses >= 0) & (losses <= limit), losses, np.nan)


def answer(
    setting: Setting, state: State, ask: Ask, round: int
) -> tuple[Answer, State, tuple[Transfer, ...], set[int]]:
    """The answer, the state it leaves (losses asked for are remembered), its traffic, and who
    now holds the present model.
    """
    size = setting.description.layout.bytes
    slots = 1 if state.home is None else len(state.models)
    if isinstance(ask, AskLoss):
        values = losses_at(setting, state, ask.clients, state.models, round, ask.max_examples)
        known = state.loss.copy()
        known[ask.clients] = np.where(np.isnan(values), known[ask.clients], values)
        holders = set(ask.clients.tolist())
        return (
            Answer(ask, values),
            replace(state, loss=known),
            loss_transfers(len(ask.clients), size, slots),
            holders,
        )
    if isinstance(ask, AskUpdates):
        updates, uploads, upload_bytes = _updates(setting, state, ask, round)
        charge = probe_transfers(len(ask.clients), uploads, size, upload_bytes=upload_bytes)
        return Answer(ask, updates), state, charge, set(ask.clients.tolist())
    if isinstance(ask, AskSlots | AskShares):
        charge = slot_transfers(len(ask.clients), len(ask.slots), size)
        # Whoever compared the models holds them; METHODS 9.1 sends FedSoft's centres to its
        # participants a second time.
        reached = set(ask.clients.tolist()) if isinstance(ask, AskSlots) else set()
        return Answer(ask, _compared(setting, state, ask)), state, charge, reached
    outcome, uploads = _trial(setting, state, ask, round)
    population = setting.description.population
    there = np.flatnonzero(setting.runtime.available(round) & (population.num_examples > 0))
    values = np.full(population.size, np.nan)
    values[there] = losses_at(setting, state, there, outcome, round, 0)
    charge = probe_transfers(len(ask.clients), uploads, size) + loss_transfers(
        len(there), size, slots
    )
    return Answer(ask, values), state, charge, set()


def losses_at(
    setting: Setting, state: State, clients: Ints, models: Params, round: int, max_examples: int
) -> Floats:
    """(n,) plausible losses of each client's model on its own training data."""
    home = np.zeros(len(clients), np.int64) if state.home is None else state.home[clients]
    options = {"max_examples": max_examples, "seed": setting.seed, "round": round}
    scores = score_clients(setting, state, clients, models, home, "train", **options)
    return plausible(scores.loss, setting.description.num_classes)


def slot_losses(setting: Setting, models: Params, clients: Ints, slots: Ints) -> Floats:
    """(n, number of slots) plausible mean losses of these models on these clients' training
    data; nan: nothing to go by.
    """
    n, s = len(clients), len(slots)
    order = ScoreOrder(np.repeat(clients, s), models, np.tile(slots, n), "train")
    scores = setting.runtime.score(order)
    return plausible(scores.loss.reshape(n, s), setting.description.num_classes)


def _compared(setting: Setting, state: State, ask: AskSlots | AskShares) -> Floats:
    if isinstance(ask, AskSlots):
        return slot_losses(setting, state.models, ask.clients, ask.slots)
    return setting.runtime.best_fit(ask.clients, state.models[ask.slots])


def _updates(
    setting: Setting, state: State, ask: AskUpdates, round: int
) -> tuple[Floats, int, int]:
    """(n, F) what training would change, nan for clients that fail; how many sent something, and
    how many bytes each.
    """
    layout = setting.description.layout
    parts = (
        [slice(0, layout.size)]
        if ask.layer == "all"
        else head_slices(layout, setting.description.num_classes)
    )
    width = sum(part.stop - part.start for part in parts)
    updates: Floats = np.full((len(ask.clients), width), np.nan)
    home = np.zeros(len(ask.clients), np.int64) if state.home is None else state.home[ask.clients]
    sent, job = 0, setting.method.job_at(round)
    for begin in range(0, len(ask.clients), 64):
        piece = slice(begin, begin + 64)
        order = TrainOrder(
            ask.clients[piece],
            state.models,
            home[piece],
            job,
            seed=setting.seed,
            round=TRIAL_ROUNDS + round,
        )
        replies = setting.runtime.train(order)
        deltas = replies.params - state.models[home[piece]]
        rows = np.concatenate([deltas[:, part] for part in parts], axis=1)
        updates[piece] = np.where(replies.ok[:, None], rows, np.nan)
        sent += int(replies.sent.sum())
    return updates, sent, 4 * width


def _trial(setting: Setting, state: State, ask: AskTrial, round: int) -> tuple[Params, int]:
    """The models after a round that is thrown away, and how many clients sent one."""
    home = [0 if state.home is None else int(state.home[c]) for c in ask.clients]
    plan = Plan(tuple(Chain(slot, (int(c),)) for slot, c in zip(home, ask.clients, strict=True)))
    memory = dict(state.memory.get("aggregation", {}))
    job = setting.method.job_at(round)
    runners = train_plan(setting, plan, state.models, TRIAL_ROUNDS + round, memory, job=job)
    merged, _ = merge_slots(setting, plan, state.models, runners, memory, round)
    return merged, sum(len(r.seconds) - len(r.silent) for r in runners)
