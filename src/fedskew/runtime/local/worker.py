"""A worker process: reads tasks from its pipe until the pipe closes. Started by
:mod:`fedskew.runtime.local.process`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

import numpy as np

from fedskew.errors import FedskewError
from fedskew.runtime.local.store import open_store
from fedskew.runtime.local.task_counter import NOTHING, Board
from fedskew.runtime.local.tasks import first_line
from fedskew.types import Params

KEEP_SECONDS = 1.0  # how long answers may wait in the worker


def serve(pipe: Connection) -> None:
    """Build the trainer, say what its model looks like, then answer tasks."""
    import cloudpickle
    import torch

    torch.set_num_threads(1)
    from fedskew.runtime.local.trainer import Trainer

    try:
        handles, factory, seed, (descriptor, workers, place) = cloudpickle.loads(pipe.recv_bytes())
        board = Board.inherited(descriptor, workers)
        trainer = Trainer(open_store(handles), factory, seed)
    except FedskewError as error:
        pipe.send(error)
        return
    except Exception as error:
        pipe.send(first_line(error))
        return
    pipe.send(trainer.model.layout)
    blocks: dict[int, Params] = {}
    while True:
        name, *arguments = pipe.recv()
        if name == "block":
            number, shape = arguments
            blocks[number] = np.memmap(
                os.fdopen(recv_handle(pipe), "r+b"), np.float32, "r+", shape=shape
            )
        elif name == "forget":
            blocks.pop(arguments[0], None)
        elif name == "frozen":
            pipe.send(trainer.model.frozen())
        elif name == "initial":
            pipe.send(initial(trainer, arguments[0]))
        else:
            work(pipe, trainer, blocks, arguments[0], lambda tasks: board.take(place, tasks))


def initial(trainer: Any, seed: int) -> Any:
    """A fresh model's parameters, or why there are none."""
    try:
        out = np.empty(trainer.model.layout.size, np.float32)
        trainer.initial(seed, out)
    except Exception as error:
        return first_line(error)
    return out


def work(
    pipe: Connection,
    trainer: Any,
    blocks: Mapping[int, Params],
    tasks: Sequence[Any],
    take: Callable[[int], int],
) -> None:
    """Do tasks of the list until all are taken. Answers wait for each other, but not for long:
    they are lost if we die.
    """
    answers, sent = [], time.monotonic()
    while (position := take(len(tasks))) != NOTHING:
        number, name, *arguments = tasks[position]
        answers.append((number, answer(trainer, blocks, name, arguments)))
        if time.monotonic() - sent > KEEP_SECONDS:
            pipe.send((answers, False))
            answers, sent = [], time.monotonic()
    pipe.send((answers, True))


def answer(trainer: Any, blocks: Mapping[int, Params], name: str, arguments: list[Any]) -> Any:
    """The answer to one task; an exception becomes its first line."""
    try:
        (block, row), *rest = arguments
        model = blocks[block][row]
        if name == "train":
            (block, row), client, job, seed, round, added = rest
            correction = None if added is None else blocks[added[0]][added[1]][: added[2]]
            return trainer.train(client, model, blocks[block][row], job, seed, round, correction)
        if name == "react":
            return trainer.react(model)
        if name == "moments":
            return trainer.moments(model, *rest)
        return trainer.score(model, *rest)
    except Exception as error:
        return first_line(error)


def main() -> None:
    """Entry point: the descriptor of the pipe is the only argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(
        EOFError, BrokenPipeError, ConnectionResetError
    ):  # the parent is gone or has closed the pipe: the ordinary end
        serve(Connection(int(sys.argv[1])))
    os._exit(0)  # nothing is left to save; taking torch apart in order would cost half a second


if __name__ == "__main__":
    main()
