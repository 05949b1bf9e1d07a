"""Who does the work: this process (``one_process.py``) or several (``worker_pool.py``), same bits.

Here is what both are asked to do and the calls they answer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedskew.runtime.replies import Reply, Trained
from fedskew.types import Ints, Layout, LocalJob, Params


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


@dataclass(frozen=True)
class MomentsTask:
    """Add up the features of one client's training examples under ``models[start]``."""

    start: int
    client: int


Task = TrainTask | ScoreTask | ReactTask | MomentsTask
# class gradients (C,), class softmax (C, C)
Reaction = tuple[NDArray[np.float64], NDArray[np.float64]]
# counts (C,), sums (C, L), products (C, L, L)
Added = tuple[Ints, NDArray[np.float64], NDArray[np.float64]]
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

    def moments(self, tasks: Sequence[MomentsTask], models: Params) -> list[Added]:
        """The features of every task's client, added up by class."""

    def frozen(self) -> dict[str, Params]:
        """Parameters that are never trained, by name."""

    def close(self) -> None:
        """Let go of processes and memory."""


def first_line(error: BaseException) -> str:
    """An exception in one line, as it stands in a failure record.

    >>> first_line(ValueError("bad label\\nmore"))
    'ValueError: bad label'
    """
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__


def reply_of(params: Params, trained: Trained) -> Reply:
    """What is said of a training run together with its parameters."""
    return Reply(
        params,
        trained.loss,
        trained.seconds,
        trained.steps,
        trained.examples,
        unfit=trained.unfit,
    )


def most_workers() -> int:
    """More processes than this only get in each other's way: 4 a core, and 16 anyway; one where
    processes cannot share anything.
    """
    return max(16, 4 * usable_cores()) if can_share() else 1


def can_share() -> bool:
    """Whether processes here can share memory and hand on open files: on Linux. Elsewhere
    everything is trained in one process.
    """
    wanted = ("memfd_create", "posix_fallocate")
    return find_spec("fcntl") is not None and all(hasattr(os, name) for name in wanted)


def usable_cores() -> int:
    """Cores this process may run on, as far as it can make use of them."""
    if not can_share():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
