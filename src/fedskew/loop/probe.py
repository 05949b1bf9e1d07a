"""The probe behind estimated signals: every client trains briefly from the first model, by default
one step on all it has; only the output layer is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedskew.accounting.traffic import probe_transfers
from fedskew.errors import RecipeError
from fedskew.types import (
    WHOLE_BATCH,
    Block,
    Description,
    Floats,
    HeadUpdates,
    Ints,
    Layout,
    LocalJob,
    Params,
    Replies,
    Runtime,
    TrainOrder,
    Transfer,
)

AT_ONCE = 64  # clients whose whole models are in memory at the same time
# first and second attempt: batch orders that no training round uses
PROBE_ROUNDS = (1 << 31, (1 << 31) + 1)

Train = Callable[[TrainOrder], Replies]


@dataclass(frozen=True)
class Attempt:
    """Clients that were probed at once, and those of them that never answered."""

    clients: tuple[int, ...]
    silent: frozenset[int]


@dataclass(frozen=True)
class Probed:
    """What a probe brought, and what it took."""

    updates: HeadUpdates
    transfers: tuple[Transfer, ...]
    attempts: tuple[Attempt, ...]
    job: LocalJob

    @property
    def failures(self) -> dict[int, str]:
        """Clients that were probed twice and gave nothing usable."""
        empty = ~self.updates.answered & (self.updates.num_examples > 0)
        return {int(c): "no usable reply to the probe" for c in np.flatnonzero(empty)}


def find_head(layout: Layout, num_classes: int) -> tuple[Block, Block | None]:
    """Weight and bias of the output layer; a model without one is refused."""
    head = layout.head(num_classes)
    if head is None:
        what = "the model has no linear output layer"
        raise RecipeError("signal.estimated", what, "Use signal.use = 'histogram'")
    return head


def head_slices(layout: Layout, num_classes: int) -> list[slice]:
    """Where the output layer lies in the flat vector: its weight, then its bias."""
    head = find_head(layout, num_classes)
    return [slice(block.offset, block.stop) for block in head if block is not None]


def bias_slice(layout: Layout, num_classes: int) -> slice | None:
    """Where the output bias lies in the flat vector; None for a model without one."""
    try:
        bias = find_head(layout, num_classes)[1]
    except RecipeError:
        return None
    return None if bias is None else slice(bias.offset, bias.stop)


def head_shape(layout: Layout, num_classes: int) -> tuple[int, int]:
    """(C, L) of the output layer, (0, 0) for a model without one."""
    head = layout.head(num_classes)
    return (0, 0) if head is None else (head[0].shape[0], head[0].shape[1])


def head_updates(
    runtime: Runtime,
    description: Description,
    initial: Params,
    seed: int,
    budget: int,
    options: Mapping[str, Any],
    *,
    train: Train | None = None,
    rounds: Sequence[int] = PROBE_ROUNDS,
) -> Probed:
    """Train everybody with examples from ``initial`` and keep the output layers. A client that
    fails is asked once more. ``train``: what to ask them through, if not the runtime itself.
    ``rounds``: whose batch orders the attempts have.
    """

    ask = train or runtime.train
    batch = options["batch"] or WHOLE_BATCH
    job = LocalJob(epochs=options["epochs"], batch=batch, lr=options["lr"])
    if options["start"] == "even":
        initial = even_start(initial, description)
    at_once = AT_ONCE if options["probe"] == "all" else budget
    heads = _Heads(runtime, description, initial, with_confusion=options.get("method") == "rlu")
    attempts: list[Attempt] = []
    uploads = 0
    for round in rounds:
        waiting = np.flatnonzero((description.population.num_examples > 0) & ~heads.answered)
        for group in _groups(waiting, at_once):
            start = np.zeros(len(group), np.int64)
            replies = ask(TrainOrder(group, initial[None], start, job, seed, round))
            heads.take(group, replies)
            uploads += int(replies.sent.sum())
            silent = frozenset(group[~replies.sent].tolist())
            attempts.append(Attempt(tuple(group.tolist()), silent))
    asked = sum(len(attempt.clients) for attempt in attempts)
    transfers = probe_transfers(asked, uploads, description.layout.bytes)
    return Probed(heads.updates(), transfers, _waves(attempts, options["probe"]), job)


def even_start(initial: Params, description: Description) -> Params:
    """The model with an output layer whose first guesses are all alike: zeros, or its own where
    its rows are alike and it has no bias, as BACSA starts it (docs/methods.md 8.1).
    """
    weight, bias = find_head(description.layout, description.num_classes)
    rows = initial[weight.offset : weight.stop].reshape(weight.shape)
    moved = bias is not None and initial[bias.offset : bias.stop].any()
    if not moved and (rows == rows[:1]).all():
        return initial
    even = initial.copy()
    for part in head_slices(description.layout, description.num_classes):
        even[part] = 0
    return even


def _groups(clients: Ints, at_once: int) -> list[Ints]:
    return [clients[begin : begin + at_once] for begin in range(0, len(clients), at_once)]


def _waves(attempts: list[Attempt], probe: str) -> tuple[Attempt, ...]:
    """Who was probed at the same time: pieces of 64 are our memory's limit, not the clients'."""
    if probe != "all" or not attempts:
        return tuple(attempts)
    seen: set[int] = set()
    first: list[Attempt] = []
    second: list[Attempt] = []
    for attempt in attempts:
        again = not seen.isdisjoint(attempt.clients)
        (second if again else first).append(attempt)
        seen.update(attempt.clients)
    return tuple(_joined(part) for part in (first, second) if part)


def _joined(attempts: list[Attempt]) -> Attempt:
    clients = tuple(client for attempt in attempts for client in attempt.clients)
    return Attempt(clients, frozenset[int]().union(*(attempt.silent for attempt in attempts)))


class _Heads:
    """Output layers as they come in."""

    def __init__(
        self, runtime: Runtime, description: Description, initial: Params, *, with_confusion: bool
    ) -> None:
        classes, size = description.num_classes, description.population.size
        self._runtime, self._initial = runtime, initial
        self._num_examples = description.population.num_examples
        self._weight, self._bias = find_head(description.layout, classes)
        self._weights = np.zeros((size, *self._weight.shape))
        self._biases = np.zeros((size, classes))
        self._steps = np.ones(size, np.int64)
        self.answered = np.zeros(size, np.bool_)
        self._confusion: Floats | None = None
        if with_confusion:
            self._confusion = np.zeros((size, classes, classes))
            self._before = runtime.auxiliary(initial[None]).class_softmax[0]

    def take(self, clients: Ints, replies: Replies) -> None:
        """Keep the output layers of those that answered usably."""
        usable = replies.ok
        good, params = clients[usable], replies.params[usable]
        weight, bias = self._weight, self._bias
        block = params[:, weight.offset : weight.stop]
        self._weights[good] = block.reshape(-1, *weight.shape)
        if bias is not None:
            self._biases[good] = params[:, bias.offset : bias.stop]
        if self._confusion is not None and len(good):
            after = self._runtime.auxiliary(params).class_softmax
            self._confusion[good] = (self._before + after) / 2
        self._steps[good] = replies.steps[usable]
        self.answered[good] = True

    def updates(self) -> HeadUpdates:
        """Everything kept."""
        weight, bias, initial = self._weight, self._bias, self._initial
        first = initial[weight.offset : weight.stop].reshape(weight.shape).astype(np.float64)
        received_bias = None
        if bias is not None:
            received_bias = initial[bias.offset : bias.stop].astype(np.float64)
        return HeadUpdates(
            received_weight=first,
            weight=self._weights,
            received_bias=received_bias,
            bias=None if bias is None else self._biases,
            steps=self._steps,
            answered=self.answered,
            num_examples=self._num_examples,
            confusion=self._confusion,
        )
