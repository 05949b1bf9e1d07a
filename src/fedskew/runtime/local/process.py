"""One worker process as its parent sees it: a pipe for small messages, a block of shared memory for parameters.

Workers are ordinary child processes started with ``python -m fedskew.runtime.local.worker``: user scripts need no
``if __name__ == "__main__"`` guard, nothing is forked from a process with threads, and a worker whose parent disappears reads
the end of its pipe and ends too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import Pipe
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from fedskew.errors import FedskewError, RunError
from fedskew.runtime.local.store import SharedStore, anonymous_file
from fedskew.types import Layout, Params

if TYPE_CHECKING:
    from torch import nn

MODEL_REMEDY = "Check the model factory: it is called without arguments and returns a torch module"
INPUTS = 0  # number of the block of shared memory that takes models in
AHEAD = 2  # tasks a worker holds at once, so that it never waits for its parent
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def end_with_parent() -> None:
    """Called in a child: the kernel kills it when its parent ends, even in the middle of a long client (Linux)."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class WorkerProcess:
    """A worker and the tasks it holds, oldest first."""

    def __init__(self, shared: SharedStore, factory: Callable[[], nn.Module], seed: int) -> None:
        import cloudpickle  # functions of a script or notebook have no importable name

        self.pipe, theirs = Pipe()
        self.pending: list[tuple[int, int, int]] = []  # (task number, input row, row for its correction)
        self._block_file: Any = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fedskew.runtime.local.worker", str(theirs.fileno())],
            pass_fds=(theirs.fileno(), *shared.descriptors),
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches the parent only, which then closes its workers in order
        )
        theirs.close()
        with contextlib.suppress(BrokenPipeError):  # a worker that could not start is reported by ready()
            self.pipe.send_bytes(cloudpickle.dumps((dict(shared.handles), factory, seed)))

    def ready(self) -> None:
        """Wait until the worker has built its model, then set up the shared block for parameters."""
        answer = self.receive()
        if isinstance(answer, FedskewError):
            raise answer
        if not isinstance(answer, Layout):
            raise RunError("model", str(answer), MODEL_REMEDY)
        self.layout = answer
        shape = (2 * AHEAD, self.layout.size)  # AHEAD rows take models in, AHEAD take corrections in
        self._block_file = anonymous_file(4 * shape[0] * shape[1])
        self._rows = np.memmap(self._block_file, np.float32, "r+", shape=shape)
        self._holds: list[int | None] = [None] * AHEAD  # which start model lies in each input row
        self._uses = [0] * AHEAD
        self.open_block(INPUTS, shape, self._block_file)

    def open_block(self, number: int, shape: tuple[int, int], file: IO[bytes]) -> None:
        """Let the worker map a block of shared memory."""
        from multiprocessing.reduction import send_handle

        self.send("block", number, shape)
        with contextlib.suppress(BrokenPipeError):  # noticed when the answer is missing
            send_handle(self.pipe, file.fileno(), self._process.pid)

    def send(self, *message: Any) -> None:
        """One small message."""
        with contextlib.suppress(BrokenPipeError):  # noticed when the answer is missing
            self.pipe.send(message)

    def receive(self) -> Any:
        """One answer outside of tasks; a dead worker is an error here."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            raise RunError(
                "local runtime", f"a worker process ended while starting ({self.fate()})", "See the message above"
            ) from None

    def forget_models(self) -> None:
        """The start models are about to change."""
        self._holds = [None] * AHEAD

    def give(self, number: int, start: int, model: Params, message: tuple[Any, ...]) -> None:
        """Hand over a task that begins with ``model``; it is copied only if the worker does not hold it already."""
        if start in self._holds:
            source = self._holds.index(start)
        else:
            source = self._uses.index(0)
            self._rows[source] = model
            self._holds[source] = start
        self._uses[source] += 1
        used = {row for _, _, row in self.pending}
        place = next(row for row in range(AHEAD, 2 * AHEAD) if row not in used)
        self.pending.append((number, source, place))
        name, *rest = message
        if name == "train" and rest[-1] is not None:  # a correction travels like a model, its row in its place
            self._rows[place, : len(rest[-1])] = rest[-1]
            rest[-1] = (place, len(rest[-1]))
        self.send(name, source, *rest)

    def finish(self) -> tuple[int, Any]:
        """The answer to the oldest task: (task number, answer)."""
        answer = self.pipe.recv()
        number, source, _ = self.pending.pop(0)
        self._uses[source] -= 1
        return number, answer

    def fate(self) -> str:
        """How the process ended, in words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout=5)
            return f"signal {-code}" if code < 0 else f"exit code {code}"
        return "still running"

    def dismiss(self) -> None:
        """Close the pipe: the worker ends as soon as it reads that."""
        self.pipe.close()

    def close(self, patience: float = 2.0) -> None:
        """End the process: politely by closing its pipe, firmly when patience (seconds) runs out."""
        self.dismiss()
        try:
            self._process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._block_file is not None:
            self._block_file.close()
