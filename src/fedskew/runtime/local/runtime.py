"""The local runtime: trains and evaluates clients on this machine.

Results do not depend on the number of workers or on who else was chosen: batch order is keyed by
(seed, client, round), each process uses one torch thread, and evaluation is cut into the same
pieces whoever computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from fedskew.errors import RunError
from fedskew.runtime.local.allocator import tune_allocator
from fedskew.runtime.local.one_process import Alone
from fedskew.runtime.local.store import Store
from fedskew.runtime.local.tasks import (
    Crew,
    MomentsTask,
    ReactTask,
    Scored,
    ScoreTask,
    TrainTask,
    usable_cores,
)
from fedskew.runtime.local.worker_pool import Team
from fedskew.runtime.replies import collect, forms_of
from fedskew.streams import stream
from fedskew.types import (
    Auxiliary,
    Bools,
    Description,
    Floats,
    Ids,
    Ints,
    Moments,
    Params,
    Population,
    ReleasedCounts,
    Replies,
    ScoreOrder,
    Scores,
    TrainOrder,
)

if TYPE_CHECKING:
    from torch import nn

PIECE = 2500  # examples of one evaluation task


class LocalRuntime:
    """Clients of a :class:`Store` trained in ``workers`` processes (1 = in this process, 0 = one
    per core).
    """

    def __init__(
        self,
        store: Store,
        factory: Callable[[], nn.Module],
        *,
        workers: int = 0,
        population: Population | None = None,
    ) -> None:
        self._store = store
        self._population = population or Population(np.diff(store.train_offsets))
        tune_allocator()
        self._factory, self._workers = factory, workers or usable_cores()
        self._second: tuple[Params, LocalRuntime] | None = None  # bodies, and who trains over them
        workers = self._workers
        self._crew: Crew = Alone(store, factory) if workers == 1 else Team(store, factory, workers)

    def __enter__(self) -> LocalRuntime:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def describe(self) -> Description:
        """Clients, classes and the model's layout."""
        return Description(self._population, self._store.num_classes, self._crew.layout)

    def initial(self, seed: int) -> Params:
        """A fresh model from the stream "init" of this seed."""
        return self._crew.initial(seed)

    def label_counts(self) -> Ints:
        """(K, C) training labels."""
        return self._store.label_counts()

    def released_counts(self, clients: Ids) -> ReleasedCounts | None:
        """Nobody adds noise: the clients are simulated here."""
        return None

    def available(self, round: int) -> Bools:
        """Everyone who has something to train on."""
        return self._population.num_examples > 0

    def train(self, order: TrainOrder) -> Replies:
        """Train the clients, the largest first so that the workers finish together."""
        clients = np.asarray(order.clients)
        added = [None] * len(clients) if order.corrections is None else order.corrections
        largest_first = np.argsort(-self._population.num_examples[clients], kind="stable")
        tasks = [
            TrainTask(
                row=int(i),
                client=int(clients[i]),
                start=int(order.start[i]),
                job=order.job,
                seed=order.seed,
                round=order.round,
                correction=added[i],
            )
            for i in largest_first
        ]
        replies, out = self._crew.train(tasks, order.models)
        forms = forms_of(order, self._population.num_examples)
        return collect(replies, order.models.shape[1], out, layout=self._crew.layout, forms=forms)

    def evaluate(self, models: Params) -> Scores:
        """Every model on the central test set."""
        rows = self._store.central_order
        pieces = [rows[i : i + PIECE] for i in range(0, len(rows), PIECE)]
        tasks = [ScoreTask(slot, "test", piece) for slot in range(len(models)) for piece in pieces]
        return _summary(
            self._crew.score(tasks, models),
            np.repeat(np.arange(len(models)), len(rows)),
            len(models),
        )

    def score(self, order: ScoreOrder) -> Scores:
        """Every client's model on its own rows, many clients to a batch."""
        if order.which == "test" and not len(self._store.test_order) and self._store.num_clients:
            raise RunError(
                "evaluation",
                "clients have no test sets",
                'Set data.client_test = "matched" or "split"',
            )
        tasks, owners = [], []
        clients, slots = np.asarray(order.clients), np.asarray(order.start)
        for slot in np.unique(slots):
            mine = np.flatnonzero(slots == slot)
            rows = [self._own_rows(int(clients[i]), order) for i in mine]
            owners.append(np.repeat(mine, [len(r) for r in rows]))
            joined = np.concatenate(rows)
            tasks += [
                ScoreTask(int(slot), order.which, joined[i : i + PIECE])
                for i in range(0, len(joined), PIECE)
            ]
        scored = self._crew.score(tasks, order.models)
        owner = np.concatenate(owners) if owners else np.empty(0, np.int64)
        return _summary(scored, owner, len(clients))

    def _own_rows(self, client: int, order: ScoreOrder) -> Ints:
        rows = self._store.rows(client, order.which)
        if not order.max_examples or len(rows) <= order.max_examples:
            return rows
        rng = stream(order.seed, "loss", client, order.round)
        return np.sort(rng.choice(rows, order.max_examples, replace=False))

    def best_fit(self, clients: Ids, models: Params) -> Floats:
        """Every model on every client's training rows, then a vote of the rows; a loss that is
        not a number never wins.
        """
        rows = [self._store.rows(int(client), "train") for client in clients]
        owner, joined = (
            np.repeat(np.arange(len(rows)), [len(r) for r in rows]),
            np.concatenate([*rows, np.empty(0, np.int64)]),
        )
        pieces = [joined[i : i + PIECE] for i in range(0, len(joined), PIECE)]
        tasks = [ScoreTask(slot, "train", piece) for slot in range(len(models)) for piece in pieces]
        scored = self._crew.score(tasks, models)
        losses = np.concatenate([loss for loss, _ in scored]) if scored else np.empty(0, np.float32)
        best = np.nan_to_num(losses.reshape(len(models), -1), nan=np.inf).argmin(axis=0)
        votes = np.bincount(owner * len(models) + best, minlength=len(rows) * len(models)).reshape(
            len(rows), len(models)
        )
        with np.errstate(invalid="ignore"):
            return np.asarray(votes / votes.sum(axis=1, keepdims=True))

    def auxiliary(self, models: Params) -> Auxiliary:
        """Every model on the server's own examples."""
        if not len(self._store.auxiliary_order):
            raise RunError(
                "data.auxiliary",
                "the server holds no examples of its own",
                "Set data.auxiliary, for example to 100",
            )
        reactions = self._crew.react([ReactTask(i) for i in range(len(models))], models)
        return Auxiliary(np.stack([g for g, _ in reactions]), np.stack([p for _, p in reactions]))

    def moments(self, clients: Ids, model: Params) -> Moments:
        """Every client's training examples, each client whole."""
        tasks = [MomentsTask(0, int(client)) for client in clients]
        added = self._crew.moments(tasks, model[None])
        return Moments(*(np.stack(part) for part in zip(*added, strict=True)))

    def concatenated(self, models: Params) -> LocalRuntime:
        """The same clients under one output layer over the bodies of these models."""
        if self._second is None or not np.array_equal(self._second[0], models):
            from fedskew.runtime.local.concatenated import SideBySide

            factory = SideBySide(self._factory, models)
            runtime = LocalRuntime(
                self._store, factory, workers=self._workers, population=self._population
            )
            self._second = models, runtime
        return self._second[1]

    def frozen(self) -> dict[str, Params]:
        """Parameters that are never trained, by name."""
        return self._crew.frozen()

    def close(self) -> None:
        """Stop the workers."""
        if self._second is not None:
            self._second[1].close()
        self._crew.close()


def _summary(scored: Sequence[Scored], owner: Ints, n: int) -> Scores:
    """Means per owner; double precision and a fixed order, so that the number of workers cannot
    show.
    """
    losses = np.concatenate([loss for loss, _ in scored]) if scored else np.empty(0, np.float32)
    correct = np.concatenate([right for _, right in scored]) if scored else np.empty(0, np.bool_)
    counts = np.bincount(owner, minlength=n)
    with np.errstate(invalid="ignore"):
        return Scores(
            loss=np.bincount(owner, weights=losses, minlength=n) / counts,
            accuracy=np.bincount(owner, weights=correct, minlength=n) / counts,
            num_examples=counts,
        )
