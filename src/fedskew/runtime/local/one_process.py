"""Everything in this process: what ``--workers 1`` means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedskew.errors import FedskewError, RunError, WorkerError
from fedskew.runtime.local.process import MODEL_REMEDY
from fedskew.runtime.local.store import Store
from fedskew.runtime.local.tasks import (
    Added,
    MomentsTask,
    Reaction,
    ReactTask,
    Scored,
    ScoreTask,
    TrainTask,
    first_line,
    reply_of,
)
from fedskew.runtime.replies import Reply
from fedskew.types import Params

if TYPE_CHECKING:
    from torch import nn


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
        replies = self._together(tasks, models, out) or {
            t.row: self._train_one(t, models, out[t.row]) for t in tasks
        }
        return [replies[row] for row in range(len(tasks))], out

    def _together(
        self, tasks: Sequence[TrainTask], models: Params, out: Params
    ) -> dict[int, Reply]:
        """All tasks at once, where the model is linear and they do the same; empty if not."""
        jobs = {task.job for task in tasks}
        linear = self._trainer.linear_for(tasks[0].job) if len(jobs) == 1 else None
        if linear is None:
            return {}
        members, replies = {}, {}
        for task in tasks:
            try:
                start = models[task.start]
                member = self._trainer.member(
                    task.client, start, out[task.row], task.job, task.seed, task.round
                )
                members[task.row] = replace(member, correction=task.correction)
            except Exception as error:  # a sick client costs one update, not the round
                replies[task.row] = Reply(None, failure=first_line(error))
        for row, trained in zip(
            members, linear.train(list(members.values()), tasks[0].job), strict=True
        ):
            replies[row] = reply_of(out[row], trained)
        return replies

    def _train_one(self, task: TrainTask, models: Params, out: Params) -> Reply:
        try:
            result = self._trainer.train(
                task.client,
                models[task.start],
                out,
                task.job,
                task.seed,
                task.round,
                task.correction,
            )
        except Exception as error:  # a sick client costs one update, not the round
            return Reply(None, failure=first_line(error))
        return reply_of(out, result)

    def score(self, tasks: Sequence[ScoreTask], models: Params) -> list[Scored]:
        """Score every task in turn."""
        try:
            return [
                self._trainer.score(models[task.start], task.which, task.rows) for task in tasks
            ]
        except Exception as error:
            raise WorkerError(
                "evaluation",
                first_line(error),
                "Check that the model's forward pass accepts the data",
            ) from error

    def react(self, tasks: Sequence[ReactTask], models: Params) -> list[Reaction]:
        """Every model in turn."""
        return [self._trainer.react(models[task.start]) for task in tasks]

    def moments(self, tasks: Sequence[MomentsTask], models: Params) -> list[Added]:
        """Every client in turn."""
        return [self._trainer.moments(models[task.start], task.client) for task in tasks]

    def frozen(self) -> dict[str, Params]:
        """Parameters that are never trained, by name."""
        return self._trainer.model.frozen()

    def close(self) -> None:
        """Give torch its threads back."""
        import torch

        torch.set_num_threads(self._threads)
