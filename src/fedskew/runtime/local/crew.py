"""Who does the work: this process alone, or several worker processes. Both answer the same three calls with the same bits."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedskew.errors import FedskewError, RunError, WorkerError
from fedskew.runtime.local.process import AHEAD, MODEL_REMEDY, WorkerProcess
from fedskew.runtime.local.results import Results
from fedskew.runtime.local.store import SharedStore, Store
from fedskew.runtime.replies import Reply, Trained
from fedskew.types import Ints, Layout, LocalJob, Params

if TYPE_CHECKING:
    from torch import nn

MAX_DEATHS = 5  # worker processes lost in one call before the run is given up


@dataclass(frozen=True)
class TrainTask:
    """Train one client from ``models[start]``; its reply is number ``row``."""

    row: int
    client: int
    start: int
    job: LocalJob
    seed: int
    round: int
    correction: Params | None = None  # added to every gradient


@dataclass(frozen=True)
class ScoreTask:
    """Score ``models[start]`` on some rows of the "train" or "test" examples."""

    start: int
    which: str
    rows: Ints


@dataclass(frozen=True)
class ReactTask:
    """See how ``models[start]`` reacts to the server's own examples."""

    start: int


Reaction = tuple[NDArray[np.float64], NDArray[np.float64]]  # class gradients (C,), class softmax (C, C)
Scored = tuple[NDArray[np.float32], NDArray[np.bool_]]


class Crew(Protocol):
    """What :class:`LocalRuntime` needs from whoever does the work."""

    layout: Layout

    def initial(self, seed: int) -> Params:
        """A fresh model."""

    def train(self, tasks: Sequence[TrainTask], models: Params) -> tuple[list[Reply], Params]:
        """Train every task: the replies by row, and all parameters as one array."""

    def score(self, tasks: Sequence[ScoreTask], models: Params) -> list[Scored]:
        """Score every task."""

    def react(self, tasks: Sequence[ReactTask], models: Params) -> list[Reaction]:
        """See how each model reacts to the server's own examples."""

    def close(self) -> None:
        """Let go of processes and memory."""


def first_line(error: BaseException) -> str:
    """An exception in one line, as it stands in a failure record.

    >>> first_line(ValueError("bad label\\nmore"))
    'ValueError: bad label'
    """
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__


def _reply(params: Params, trained: Trained) -> Reply:
    return Reply(params, trained.loss, trained.seconds, trained.steps, trained.examples, finite=trained.finite)


class Alone:
    """Everything in this process: slower than a crew on two cores, but a debugger sees it all."""

    def __init__(self, store: Store, factory: Callable[[], nn.Module]) -> None:
        import torch

        from fedskew.runtime.local.trainer import Trainer

        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)  # the same bits as in a worker, and faster on small models
        try:
            self._trainer = Trainer(store, factory, seed=0)
        except FedskewError:
            raise
        except Exception as error:
            raise RunError("model", first_line(error), MODEL_REMEDY) from error
        self.layout = self._trainer.model.layout

    def initial(self, seed: int) -> Params:
        """A fresh model."""
        out = np.empty(self.layout.size, np.float32)
        self._trainer.initial(seed, out)
        return out

    def train(self, tasks: Sequence[TrainTask], models: Params) -> tuple[list[Reply], Params]:
        """Train every task in turn, or all of them together."""
        out = np.empty((len(tasks), self.layout.size), np.float32)
        replies = self._together(tasks, models, out) or {t.row: self._train_one(t, models, out[t.row]) for t in tasks}
        return [replies[row] for row in range(len(tasks))], out

    def _together(self, tasks: Sequence[TrainTask], models: Params, out: Params) -> dict[int, Reply]:
        """All tasks at once, where the model is linear and they do the same; empty if not."""
        linear = self._trainer.linear
        if linear is None or len({task.job for task in tasks}) != 1:
            return {}
        members, replies = {}, {}
        for task in tasks:
            try:
                start = models[task.start]
                member = self._trainer.member(task.client, start, out[task.row], task.job, task.seed, task.round)
                members[task.row] = replace(member, correction=task.correction)
            except Exception as error:  # a sick client costs one update, not the round
                replies[task.row] = Reply(None, failure=first_line(error))
        for row, trained in zip(members, linear.train(list(members.values()), tasks[0].job), strict=True):
            replies[row] = _reply(out[row], trained)
        return replies

    def _train_one(self, task: TrainTask, models: Params, out: Params) -> Reply:
        try:
            result = self._trainer.train(task.client, models[task.start], out, task.job, task.seed, task.round, task.correction)
        except Exception as error:  # a sick client costs one update, not the round
            return Reply(None, failure=first_line(error))
        return _reply(out, result)

    def score(self, tasks: Sequence[ScoreTask], models: Params) -> list[Scored]:
        """Score every task in turn."""
        try:
            return [self._trainer.score(models[task.start], task.which, task.rows) for task in tasks]
        except Exception as error:
            raise WorkerError(
                "evaluation", first_line(error), "Check that the model's forward pass accepts the data"
            ) from error

    def react(self, tasks: Sequence[ReactTask], models: Params) -> list[Reaction]:
        """Every model in turn."""
        return [self._trainer.react(models[task.start]) for task in tasks]

    def close(self) -> None:
        """Give torch its threads back."""
        import torch

        torch.set_num_threads(self._threads)


class Team:
    """Worker processes fed through pipes; parameters travel through shared memory, two tasks ahead per worker."""

    def __init__(self, store: Store, factory: Callable[[], nn.Module], workers: int) -> None:
        self._shared = SharedStore.of(store)
        self._factory = factory
        self._seed = 0
        self._workers: list[WorkerProcess] = []
        self._results = Results()
        try:
            self._workers = [self._hire() for _ in range(workers)]
            for worker in self._workers:
                worker.ready()
        except BaseException:
            self.close()
            raise
        self.layout = self._workers[0].layout

    def _hire(self) -> WorkerProcess:
        return WorkerProcess(self._shared, self._factory, self._seed)

    def _room(self, rows: int) -> tuple[int, Params]:
        """Shared memory for this many replies: the number of its block, and an array on it."""
        known = set(self._results.blocks)
        block, array = self._results.take(rows, self.layout.size)
        dropped = self._results.shed()
        for worker in self._workers:
            if block.number not in known:
                worker.open_block(block.number, (block.rows, block.width), block.file)
            for number in dropped:
                worker.send("forget", number)
        return block.number, array

    def initial(self, seed: int) -> Params:
        """A fresh model; every worker builds it, because parts that never travel (frozen embeddings) must agree."""
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

        def message(task: TrainTask) -> tuple[Any, ...]:
            return ("train", number, task.row, task.client, task.job, task.seed, task.round, task.correction)

        for i, answer in self._spread(tasks, models, message):
            row = tasks[i].row
            replies[row] = Reply(None, failure=answer) if isinstance(answer, str) else _reply(out[row], answer)
        return replies, out

    def score(self, tasks: Sequence[ScoreTask], models: Params) -> list[Scored]:
        """Spread the tasks over the workers; an error in the model's forward pass ends the run."""
        return self._all(tasks, models, lambda task: ("score", task.which, task.rows))

    def react(self, tasks: Sequence[ReactTask], models: Params) -> list[Reaction]:
        """Spread the models over the workers."""
        return self._all(tasks, models, lambda task: ("react",))

    def _all(self, tasks: Sequence[Any], models: Params, message: Callable[[Any], tuple[Any, ...]]) -> list[Any]:
        """Every answer in the order of the tasks; here an error is no client's fault and ends the run."""
        answers: dict[int, Any] = dict(self._spread(tasks, models, message))
        for answer in answers.values():
            if isinstance(answer, str):
                raise WorkerError("evaluation", answer, "Check that the model's forward pass accepts the data")
        return [answers[i] for i in range(len(tasks))]

    def _spread(
        self, tasks: Sequence[Any], models: Params, message: Callable[[Any], tuple[Any, ...]]
    ) -> Iterable[tuple[int, Any]]:
        """Yield (task number, answer) as answers arrive."""

        def give(worker: WorkerProcess) -> None:
            if waiting:
                i = waiting.popleft()
                worker.give(i, tasks[i].start, models[tasks[i].start], message(tasks[i]))

        waiting, deaths = deque(range(len(tasks))), [0] * len(tasks)
        for worker in self._workers:
            worker.forget_models()
        for _ in range(AHEAD):  # a first task for everybody, then a second one ahead
            for worker in self._workers:
                give(worker)
        while busy := {worker.pipe: worker for worker in self._workers if worker.pending}:
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                try:
                    answered = worker.finish()
                except (EOFError, OSError):
                    lost = self._replace(worker, waiting, deaths)
                    if lost is not None:
                        yield lost, f"worker process died ({worker.fate()})"
                    for _ in range(AHEAD):
                        give(self._workers[-1])
                    continue
                yield answered
                give(worker)

    def _replace(self, dead: WorkerProcess, waiting: deque[int], deaths: list[int]) -> int | None:
        """Put a new process in the place of one that died. Its tasks are given again, the one it died on once more only.

        Returns the task that is given up, if there is one: it has now killed two processes.
        """
        held = [number for number, _, _ in dead.pending]
        deaths[held[0]] += 1
        if sum(deaths) > MAX_DEATHS:
            what = f"{sum(deaths)} worker processes died in one round ({dead.fate()})"
            raise WorkerError("local runtime", what, "Check memory, or use --workers 1")
        self._workers.remove(dead)
        dead.close()
        self._workers.append(self._hire())
        self._workers[-1].ready()
        for block in self._results.blocks.values():
            self._workers[-1].open_block(block.number, (block.rows, block.width), block.file)
        lost = held[0] if deaths[held[0]] > 1 else None
        waiting.extendleft(reversed([i for i in held if i != lost]))
        return lost

    def close(self) -> None:
        """Stop every worker and free the shared memory."""
        for worker in self._workers:
            worker.dismiss()
        deadline = time.monotonic() + 2.0
        for worker in self._workers:
            worker.close(max(0.0, deadline - time.monotonic()))
        self._workers = []
        self._results.close()
        self._shared.close()


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
