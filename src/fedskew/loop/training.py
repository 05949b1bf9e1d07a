"""Training a plan wave by wave, and merging what comes back, slot by slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedskew.errors import RunError
from fedskew.loop.method import Setting
from fedskew.types import (
    Chain,
    Ends,
    Ids,
    LocalJob,
    Memory,
    Params,
    Plan,
    Replies,
    ScoreOrder,
    Scores,
    State,
    Stateful,
    TrainOrder,
)

PIECE = 64  # clients whose own models are in memory at the same time


@dataclass
class Runner:
    """How far one chain has come."""

    params: Params  # the last usable model; the slot's own until somebody has answered
    answered: bool = False
    dropped: bool = False
    examples: int = 0
    steps: int = 0
    loss: dict[int, float] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    # client -> its own BatchNorm statistics, with bn = "local"
    statistics: dict[str, Params] = field(default_factory=dict)
    work: dict[int, tuple[int, int]] = field(default_factory=dict)  # client -> (examples, steps)
    # what clients began and ended with, if a rule learns from it
    received: dict[int, Params] = field(default_factory=dict)
    returned: dict[int, Params] = field(default_factory=dict)

    def take(self, client: int, replies: Replies, row: int, *, give_up: bool) -> None:
        """Note what one client answered; a failure leaves the chain's model as it is, or ends
        the chain.
        """
        self.seconds[client] = float(replies.seconds[row])
        if not replies.sent[row]:
            self.silent.add(client)
        if replies.failures[row]:
            self.failures[client] = replies.failures[row]
            self.dropped = give_up
            return
        self.params, self.answered = replies.params[row], True
        self.work[client] = int(replies.examples[row]), int(replies.steps[row])
        self.examples += self.work[client][0]
        self.steps += self.work[client][1]
        self.loss[client] = float(replies.loss[row])


def train_plan(
    setting: Setting,
    plan: Plan,
    models: Params,
    round: int,
    memory: Memory,
    *,
    job: LocalJob | None = None,
    steering: Memory | None = None,
    statistics: Memory | None = None,
) -> list[Runner]:
    """Train the plan wave by wave. A client that fails mid-chain is skipped, or ends its chain
    (``plan.broken``).

    ``memory`` is what the aggregation rule remembers, ``steering`` what the procedure does: both
    may correct gradients. ``statistics``: what each client keeps of BatchNorm (client -> buffers);
    it begins with those instead of the model's.
    """
    runners = [Runner(models[chain.slot]) for chain in plan.chains]
    job = job or setting.method.job_at(round)
    choosing, planning = setting.method.selection.function, setting.method.procedure.function
    keep = isinstance(choosing, Stateful) and choosing.learn is not None
    keep = keep or (isinstance(planning, Stateful) and planning.after is not None)
    for wave in plan.waves():
        live = [
            (i, client)
            for i, client in zip(wave.chains, wave.clients, strict=True)
            if not runners[i].dropped
        ]
        starts, index = _starts(plan.chains, runners, models, [i for i, _ in live])
        if statistics:
            starts, index = with_statistics(
                setting, [c for _, c in live], starts, index, statistics
            )
        order = TrainOrder(
            [c for _, c in live],
            starts,
            index,
            job,
            seed=setting.seed,
            round=round,
            corrections=_all_corrections(setting, plan, live, models, memory, steering or {}),
        )
        replies = setting.runtime.train(order)
        for row, (i, client) in enumerate(live):
            runners[i].take(client, replies, row, give_up=plan.broken == "drop")
            if setting.method.bn == "local" and client in runners[i].loss:
                runners[i].statistics[str(client)] = replies.params[
                    row, setting.description.layout.num_weights :
                ].copy()
            if keep and client in runners[i].loss:
                runners[i].received[client], runners[i].returned[client] = (
                    starts[index[row]],
                    replies.params[row],
                )
    return runners


def _all_corrections(
    setting: Setting,
    plan: Plan,
    live: Sequence[tuple[int, int]],
    models: Params,
    memory: Memory,
    steering: Memory,
) -> Params | None:
    """What the aggregation rule and the procedure (FedSoft) have each client add to its
    gradients, together.
    """
    server, rule = _corrections(setting, plan, live, memory), setting.method.procedure
    if not isinstance(rule.function, Stateful) or rule.function.corrections is None or not live:
        return server
    weights, clients = setting.description.layout.num_weights, [client for _, client in live]
    own = np.asarray(
        rule.function.corrections(steering, clients, models, weights, **rule.options), np.float32
    )
    return own if server is None else own + server


def _corrections(
    setting: Setting, plan: Plan, live: Sequence[tuple[int, int]], memory: Memory
) -> Params | None:
    """What the aggregation rule has each client add to its gradients (SCAFFOLD, FedDyn); each
    slot remembers its own.
    """
    rule = setting.method.aggregation
    if not isinstance(rule.function, Stateful) or rule.function.corrections is None:
        return None
    if any(len(chain.clients) > 1 for chain in plan.chains):
        where = f"aggregation {rule.name}"
        raise RunError(
            where, "has no meaning for chains of several clients", "Use procedure.use = 'parallel'"
        )
    find, weights = rule.function.corrections, setting.description.layout.num_weights
    slots = [plan.chains[i].slot for i, _ in live]
    rows = [
        find(memory.get(str(s), {}), [c], weights, **rule.options)[0]
        for s, (_, c) in zip(slots, live, strict=True)
    ]
    return np.stack(rows) if rows else None


def _starts(
    chains: Sequence[Chain], runners: Sequence[Runner], models: Params, live: Sequence[int]
) -> tuple[Params, Ids]:
    """The models this wave begins with, and which of them each chain takes. Chains at their
    beginning share their slot's.
    """
    if not any(runners[i].answered for i in live):
        return models, [chains[i].slot for i in live]
    return np.stack([runners[i].params for i in live]), range(len(live))


def with_statistics(
    setting: Setting, clients: Ids, models: Params, start: Ids, statistics: Memory
) -> tuple[Params, Ids]:
    """Each client's model with its own BatchNorm statistics where it has any: one row per
    client, and which row is whose.
    """
    rows, weights = models[np.asarray(start, np.int64)], setting.description.layout.num_weights
    for row, client in zip(rows, clients, strict=True):
        if str(client) in statistics:
            row[weights:] = statistics[str(client)]
    return rows, range(len(rows))


def score_clients(
    setting: Setting,
    state: State,
    clients: Ids,
    models: Params,
    start: Ids,
    which: Literal["test", "train"],
    **options: int,
) -> Scores:
    """Clients' models on their own data, with their own BatchNorm statistics where they keep
    them (64 at a time).
    """
    statistics = state.memory.get("bn")
    if not statistics:
        return setting.runtime.score(ScoreOrder(clients, models, start, which, **options))
    parts = []
    for begin in range(0, len(clients), PIECE):
        ids = [int(c) for c in clients[begin : begin + PIECE]]
        rows, index = with_statistics(
            setting, ids, models, start[begin : begin + PIECE], statistics
        )
        parts.append(setting.runtime.score(ScoreOrder(ids, rows, index, which, **options)))
    return Scores(
        *(
            np.concatenate([getattr(p, name) for p in parts])
            for name in ("loss", "accuracy", "num_examples")
        )
    )


def _stack(rows: Sequence[Params]) -> Params:
    """The rows as one array; without a copy if they are all the rows of one already, as after a
    parallel round.
    """
    owner = rows[0].base
    if (
        isinstance(owner, np.ndarray)
        and owner.shape == (len(rows), len(rows[0]))
        and owner.flags.c_contiguous
    ):
        first, width = owner.__array_interface__["data"][0], owner.strides[0]
        if all(
            row.__array_interface__["data"][0] == first + i * width for i, row in enumerate(rows)
        ):
            return owner
    return np.stack(rows)


def merge_slots(
    setting: Setting,
    plan: Plan,
    models: Params,
    runners: Sequence[Runner],
    memory: Memory,
    round: int,
) -> tuple[Params, Memory]:
    """Aggregate the chain ends of each slot; a slot nobody served keeps its model."""
    merged, kept = np.array(models), dict(memory)
    for slot in sorted({chain.slot for chain in plan.chains}):
        served = [
            runner for chain, runner in zip(plan.chains, runners, strict=True) if chain.slot == slot
        ]
        ends = [runner for runner in served if runner.answered and not runner.dropped]
        if not ends:
            continue
        stacked = Ends(
            params=_stack([r.params for r in ends]),
            num_examples=np.array([r.examples for r in ends]),
            steps=np.array([r.steps for r in ends]),
            layout=setting.description.layout,
            clients=np.array([list(r.seconds)[-1] for r in ends]),
            num_clients=setting.description.population.size,
            job=setting.method.job_at(round),
        )
        merged[slot], kept[str(slot)] = setting.method.aggregation(
            models[slot], stacked, memory=kept.get(str(slot), {})
        )
    return merged, kept
