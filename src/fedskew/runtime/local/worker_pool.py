"""Several worker processes that share the cores."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.errors import RunError, WorkerError
from fedskew.runtime.local.process import MODEL_REMEDY, WorkerProcess
from fedskew.runtime.local.shared_params import Blocks
from fedskew.runtime.local.store import SharedStore, Store, anonymous_file
from fedskew.runtime.local.task_counter import NOTHING, Board
from fedskew.runtime.local.tasks import (
    Added,
    MomentsTask,
    Reaction,
    ReactTask,
    Scored,
    ScoreTask,
    Task,
    TrainTask,
    reply_of,
)
from fedskew.runtime.replies import Reply
from fedskew.types import Params

if TYPE_CHECKING:
    from torch import nn

MAX_DEATHS = 5  # worker processes lost in one call before the run is given up


class Team:
    """Worker processes that help themselves from a list of tasks; parameters lie in shared
    memory.
    """

    def __init__(self, store: Store, factory: Callable[[], nn.Module], workers: int) -> None:
        self._shared = SharedStore.of(store)
        self._board = Board(anonymous_file(Board.size(workers)), workers)
        self._factory = factory
        self._seed = 0
        self._workers: list[WorkerProcess] = []
        self._blocks = Blocks()
        try:
            self._workers = [self._hire(place) for place in range(workers)]
            for worker in self._workers:
                worker.ready()
        except BaseException:
            self.close()
            raise
        self.layout = self._workers[0].layout

    def _hire(self, place: int) -> WorkerProcess:
        return WorkerProcess(self._shared, self._factory, self._seed, self._board, place)

    def _room(self, rows: int) -> tuple[int, Params]:
        """Shared memory for this many models: the number of its block, and an array on it."""
        known = set(self._blocks.blocks)
        block, array = self._blocks.take(rows, self.layout.size)
        dropped = self._blocks.shed()
        for worker in self._workers:
            if block.number not in known:
                worker.open_block(block)
            for number in dropped:
                worker.send("forget", number)
        return block.number, array

    def _lend(self, rows: Sequence[Params]) -> tuple[int, Params]:
        """These vectors in shared memory, for as long as the array lives."""
        number, array = self._room(len(rows))
        for i, row in enumerate(rows):
            array[i, : len(row)] = row
        return number, array

    def initial(self, seed: int) -> Params:
        """A fresh model; every worker builds it, because parts that never travel (frozen
        embeddings) must agree.
        """
        self._seed = seed
        for worker in self._workers:
            worker.send("initial", seed)
        vectors = [worker.receive() for worker in self._workers]
        if isinstance(vectors[0], str):
            raise RunError("model", vectors[0], MODEL_REMEDY)
        return np.asarray(vectors[0], np.float32)

    def train(self, tasks: Sequence[TrainTask], models: Params) -> tuple[list[Reply], Params]:
        """Spread the tasks over the workers, the first in the list first."""
        replies: list[Reply] = [Reply(None, failure="never trained")] * len(tasks)
        number, out = self._room(len(tasks))
        added = [task.correction for task in tasks if task.correction is not None]
        lent, _keep = self._lend(added) if added else (0, None)
        places = iter([(lent, i, len(row)) for i, row in enumerate(added)])
        messages = [
            (
                "train",
                (number, t.row),
                t.client,
                t.job,
                t.seed,
                t.round,
                None if t.correction is None else next(places),
            )
            for t in tasks
        ]
        for i, answer in self._spread(tasks, models, messages):
            row = tasks[i].row
            replies[row] = (
                Reply(None, failure=answer)
                if isinstance(answer, str)
                else reply_of(out[row], answer)
            )
        return replies, out

    def score(self, tasks: Sequence[ScoreTask], models: Params) -> list[Scored]:
        """Spread the tasks over the workers; an error in the model's forward pass ends the run."""
        return self._all(tasks, models, [("score", task.which, task.rows) for task in tasks])

    def react(self, tasks: Sequence[ReactTask], models: Params) -> list[Reaction]:
        """Spread the models over the workers."""
        return self._all(tasks, models, [("react",)] * len(tasks))

    def moments(self, tasks: Sequence[MomentsTask], models: Params) -> list[Added]:
        """Spread the clients over the workers."""
        return self._all(tasks, models, [("moments", task.client) for task in tasks])

    def frozen(self) -> dict[str, Params]:
        """As the first worker has built them; all have built the same."""
        self._workers[0].send("frozen")
        found: dict[str, Params] = self._workers[0].receive()
        return found

    def _all(
        self, tasks: Sequence[Task], models: Params, messages: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        """Every answer in the order of the tasks; here an error is no client's fault and ends
        the run.
        """
        answers: dict[int, Any] = dict(self._spread(tasks, models, messages))
        for answer in answers.values():
            if isinstance(answer, str):
                raise WorkerError(
                    "evaluation", answer, "Check that the model's forward pass accepts the data"
                )
        return [answers[i] for i in range(len(tasks))]

    def _spread(
        self, tasks: Sequence[Task], models: Params, messages: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        """Yield (task number, answer) as answers arrive. What was lost with a dead worker is
        done again, once.
        """
        used = sorted({task.start for task in tasks})
        number, _keep = self._lend([models[start] for start in used])
        place = {start: (number, i) for i, start in enumerate(used)}
        listed = {
            i: (i, name, place[tasks[i].start], *rest) for i, (name, *rest) in enumerate(messages)
        }
        deaths: Counter[int] = Counter()
        while listed:
            for i, answer in self._pass(list(listed.values()), deaths):
                del listed[i]
                yield i, answer
            for i in [i for i, count in deaths.items() if count > 1 and i in listed]:
                del listed[i]
                yield i, f"worker process died ({self._last_fate})"

    def _pass(
        self, listed: Sequence[tuple[Any, ...]], deaths: Counter[int]
    ) -> Iterator[tuple[int, Any]]:
        """One list of tasks to its end; ``deaths`` counts the workers each task took with it."""
        self._board.clear()
        message = ForkingPickler.dumps(("do", listed))
        for worker in self._workers:
            worker.begin(message)
        while busy := {worker.pipe: worker for worker in self._workers if worker.busy}:
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                try:
                    yield from worker.results()
                except (EOFError, OSError):
                    position = self._board.last(worker.place)
                    deaths[listed[position][0] if position != NOTHING else NOTHING] += 1
                    self._replace(worker, deaths.total())
                    self._workers[worker.place].begin(message)

    def _replace(self, dead: WorkerProcess, deaths: int) -> None:
        """Put a new process in the place of one that died."""
        self._last_fate = dead.fate()
        if deaths > MAX_DEATHS:
            what = f"{deaths} worker processes died in one round ({self._last_fate})"
            raise WorkerError("local runtime", what, "Check memory, or use --workers 1")
        dead.close()
        self._workers[dead.place] = self._hire(dead.place)
        self._workers[dead.place].ready()
        for block in self._blocks.blocks.values():
            self._workers[dead.place].open_block(block)

    def close(self) -> None:
        """Stop every worker and free the shared memory."""
        for worker in self._workers:
            worker.dismiss()
        deadline = time.monotonic() + 2.0
        for worker in self._workers:
            worker.close(max(0.0, deadline - time.monotonic()))
        self._workers = []
        self._blocks.close()
        self._board.close()
        self._shared.close()
