"""Training a plan wave by wave (:mod:`fedskew.loop.merging` puts together what comes back)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedskew.errors import RunError
from fedskew.loop.method import Setting
from fedskew.loop.timing import late_clients, model_bytes
from fedskew.loop.verifying import verified
from fedskew.runtime.replies import Reply, collect, reply_of
from fedskew.types import (
    Chain,
    Ids,
    LocalJob,
    Memory,
    Params,
    Plan,
    Replies,
    ScoreOrder,
    Scores,
    Signal,
    State,
    TrainOrder,
)

PIECE = 64  # clients whose own models are in memory at the same time


@dataclass
class Runner:
    """How far one chain has come."""

    params: Params  # the last usable model; the slot's own until somebody has answered
    answered: bool = False
    dropped: bool = False
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
        """Note what one client answered; a failure leaves the chain's model, or ends the chain."""
        self.seconds[client] = float(replies.seconds[row])
        if not replies.sent[row]:
            self.silent.add(client)
        if replies.failures[row]:
            self.failures[client] = replies.failures[row]
            self.dropped = give_up
            return
        self.params, self.answered = replies.params[row], True
        self.work[client] = int(replies.examples[row]), int(replies.steps[row])
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
    holders: Collection[int] = (),
    signal: Signal | None = None,
) -> list[Runner]:
    """Train the plan wave by wave.

    A client that fails mid-chain is skipped, or ends its chain (``plan.broken``).

    ``memory`` is what the aggregation rule remembers, ``steering`` what the procedure does: both
    may correct gradients. ``statistics``: what each client keeps of BatchNorm (client -> buffers);
    it begins with those instead of the model's. ``holders`` need no download. ``signal``: the label
    mixes by which replies are verified, where the recipe wants that.
    """
    runners = [Runner(models[chain.slot]) for chain in plan.chains]
    size = model_bytes(setting)
    down, up = size * plan.models_down, size * plan.models_up
    job = job or setting.method.job_at(round)
    for wave in plan.waves():
        pairs = zip(wave.chains, wave.clients, strict=True)
        live = [(i, client) for i, client in pairs if not runners[i].dropped]
        clients = [client for _, client in live]
        starts, index = _starts(plan.chains, runners, models, [i for i, _ in live])
        if statistics:
            starts, index = with_statistics(setting, clients, starts, index, statistics)
        added = _corrections(setting, plan, live, models, memory, steering or {})
        order = TrainOrder(clients, starts, index, job, setting.seed, round, added)
        late = late_clients(setting, clients, job, holders, down=down, up=up)
        replies = train_in_time(setting, order, late)
        replies = verified(setting, order, replies, signal)
        _take(setting, plan, runners, live, replies, starts, index)
    return runners


def _take(
    setting: Setting,
    plan: Plan,
    runners: Sequence[Runner],
    live: Sequence[tuple[int, int]],
    replies: Replies,
    starts: Params,
    index: Ids,
) -> None:
    """Note what a wave's clients answered."""
    method, buffers = setting.method, setting.description.layout.num_weights
    learns = method.selection.rule.learns_from is not None
    keep = learns or method.procedure.rule.looks_back or method.trust.on
    for row, (i, client) in enumerate(live):
        runner = runners[i]
        runner.take(client, replies, row, give_up=plan.broken == "drop")
        if client not in runner.loss:
            continue
        if method.bn == "local":
            runner.statistics[str(client)] = replies.params[row, buffers:].copy()
        if keep:
            runner.received[client] = starts[index[row]]
            runner.returned[client] = replies.params[row]


def train_in_time(
    setting: Setting, order: TrainOrder, late: Collection[int] = frozenset()
) -> Replies:
    """Let clients train, but for those whose answer would come after the deadline: nobody waits
    for them, so nobody computes what they would have answered.
    """
    if not late:
        return setting.runtime.train(order)
    rows = [row for row, client in enumerate(order.clients) if int(client) not in late]
    replies = setting.runtime.train(order.only(rows))
    place = {row: number for number, row in enumerate(rows)}
    missed = Reply(None, failure="missed the deadline")
    answers = [
        reply_of(replies, place[row]) if row in place else missed
        for row in range(len(order.clients))
    ]
    return collect(answers, order.models.shape[1], layout=setting.description.layout)


def _corrections(
    setting: Setting,
    plan: Plan,
    live: Sequence[tuple[int, int]],
    models: Params,
    memory: Memory,
    steering: Memory,
) -> Params | None:
    """What the procedure (FedSoft) or else the aggregation rule has each client add to its
    gradients. A recipe with both is refused.
    """
    if not live:
        return None
    rule = setting.method.procedure.rule
    if not rule.corrects:
        return _server_corrections(setting, plan, live, memory)
    weights, clients = setting.description.layout.num_weights, [client for _, client in live]
    steered = rule.corrections(steering, clients, models, weights)
    return None if steered is None else np.asarray(steered, np.float32)


def _server_corrections(
    setting: Setting, plan: Plan, live: Sequence[tuple[int, int]], memory: Memory
) -> Params | None:
    """What the aggregation rule has each client add to its gradients (SCAFFOLD, FedDyn); each
    slot remembers its own.
    """
    name, rule = setting.method.aggregation.name, setting.method.aggregation.rule
    if not rule.corrects:
        return None
    if any(len(chain.clients) > 1 for chain in plan.chains):
        what = "has no meaning for chains of several clients"
        raise RunError(f"aggregation {name}", what, "Use procedure.use = 'parallel'")
    weights, rows = setting.description.layout.num_weights, []
    for i, client in live:
        kept = memory.get(str(plan.chains[i].slot), {})
        added = rule.corrections(kept, [client], weights)
        rows.append(np.zeros(weights, np.float32) if added is None else added[0])
    return np.stack(rows)


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


def score_clients(setting: Setting, state: State, order: ScoreOrder) -> Scores:
    """Clients' models on their own data, with their own BatchNorm statistics where they keep them
    (64 at a time).
    """
    statistics = state.memory.get("bn")
    if not statistics:
        return setting.runtime.score(order)
    parts = []
    for begin in range(0, len(order.clients), PIECE):
        piece = order.only(np.arange(begin, min(begin + PIECE, len(order.clients))))
        ids = [int(c) for c in piece.clients]
        rows, index = with_statistics(setting, ids, piece.models, piece.start, statistics)
        parts.append(setting.runtime.score(replace(piece, models=rows, start=index)))
    names = ("loss", "accuracy", "num_examples")
    return Scores(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))
