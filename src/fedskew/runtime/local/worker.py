"""A worker process: reads tasks from its pipe until the pipe closes. Started by :mod:`fedskew.runtime.local.process`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

import numpy as np

from fedskew.errors import FedskewError
from fedskew.runtime.local.crew import first_line
from fedskew.runtime.local.process import INPUTS, end_with_parent
from fedskew.runtime.local.store import open_store
from fedskew.types import Params


def serve(pipe: Connection) -> None:
    """Build the trainer, say what its model looks like, then answer tasks."""
    import cloudpickle
    import torch

    torch.set_num_threads(1)
    from fedskew.runtime.local.trainer import Trainer

    try:
        handles, factory, seed = cloudpickle.loads(pipe.recv_bytes())
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
            blocks[number] = np.memmap(os.fdopen(recv_handle(pipe), "r+b"), np.float32, "r+", shape=shape)
        elif name == "forget":
            blocks.pop(arguments[0], None)
        else:
            pipe.send(answer(trainer, blocks, name, arguments))


def answer(trainer: Any, blocks: Mapping[int, Params], name: str, arguments: list[Any]) -> Any:
    """The answer to one task; an exception becomes its first line."""
    try:
        if name == "initial":
            out = np.empty(trainer.model.layout.size, np.float32)
            trainer.initial(arguments[0], out)
            return out
        source, *rest = arguments
        inputs = blocks[INPUTS]
        if name == "train":
            number, row, client, job, seed, round, place = rest
            correction = None if place is None else inputs[place[0], : place[1]]
            return trainer.train(client, inputs[source], blocks[number][row], job, seed, round, correction)
        if name == "react":
            return trainer.react(inputs[source])
        return trainer.score(inputs[source], *rest)
    except Exception as error:
        return first_line(error)


def main() -> None:
    """Entry point: the descriptor of the pipe is the only argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    with contextlib.suppress(
        EOFError, BrokenPipeError, ConnectionResetError
    ):  # the parent is gone or has closed the pipe: the ordinary end
        serve(Connection(int(sys.argv[1])))
    os._exit(0)  # nothing is left to save; taking torch apart in order would cost half a second


if __name__ == "__main__":
    main()
