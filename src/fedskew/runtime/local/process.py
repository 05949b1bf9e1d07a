"""One worker process as its parent sees it: a pipe for small messages; parameters lie in blocks of
shared memory.

Workers are copies of a nursery (:mod:`fedskew.runtime.local.nursery`): user scripts need no
``if __name__ == "__main__"`` guard, nothing is forked from a process with threads, and a worker
whose parent disappears ends too.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.reduction import ForkingPickler, send_handle
from typing import TYPE_CHECKING, Any

from fedskew.errors import FedskewError, RunError
from fedskew.runtime.local.nursery import start_child
from fedskew.runtime.local.shared_params import Block
from fedskew.runtime.local.store import SharedStore
from fedskew.runtime.local.task_counter import Board
from fedskew.types import Layout

if TYPE_CHECKING:
    from torch import nn

WORKER = "fedskew.runtime.local.worker"
MODEL_REMEDY = "Check the model factory: it is called without arguments and returns a torch module"


class WorkerProcess:
    """A worker, its place on the board, and whether it is at work."""

    def __init__(
        self,
        shared: SharedStore,
        factory: Callable[[], nn.Module],
        seed: int,
        board: Board,
        place: int,
    ) -> None:
        import cloudpickle  # functions of a script or notebook have no importable name

        self.pipe, theirs = Pipe()
        self.place = place
        self.busy = False
        inherited = (board.descriptor, *shared.descriptors)
        self._process = start_child(WORKER, theirs.fileno(), inherited)
        theirs.close()
        # a worker that could not start is reported by ready()
        with contextlib.suppress(BrokenPipeError):
            board_and_place = (board.descriptor, board.workers, place)
            self.pipe.send_bytes(
                cloudpickle.dumps((dict(shared.handles), factory, seed, board_and_place))
            )

    def ready(self) -> None:
        """Wait until the worker has built its model."""
        answer = self.receive()
        if isinstance(answer, FedskewError):
            raise answer
        if not isinstance(answer, Layout):
            raise RunError("model", str(answer), MODEL_REMEDY)
        self.layout = answer

    def open_block(self, block: Block) -> None:
        """Let the worker map a block of shared memory."""
        self.send("block", block.number, (block.rows, block.width))
        with contextlib.suppress(BrokenPipeError):  # noticed when the answer is missing
            send_handle(self.pipe, block.file.fileno(), self._process.pid)

    def send(self, *message: Any) -> None:
        """One small message."""
        self.send_pickled(ForkingPickler.dumps(message))

    def send_pickled(self, message: memoryview) -> None:
        """One message that was pickled before, once for all workers."""
        with contextlib.suppress(BrokenPipeError):  # noticed when the answer is missing
            self.pipe.send_bytes(message)

    def receive(self) -> Any:
        """One answer outside of tasks; a dead worker is an error here."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            raise RunError(
                "local runtime",
                f"a worker process ended while starting ({self.fate()})",
                "See the message above",
            ) from None

    def begin(self, message: memoryview) -> None:
        """Let the worker help itself from a list of tasks."""
        self.busy = True
        self.send_pickled(message)

    def results(self) -> list[tuple[int, Any]]:
        """What it has done since it was last asked, as (task number, answer)."""
        answers, ended = self.pipe.recv()
        self.busy = not ended
        return list(answers)

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
        """End the process: politely by closing its pipe, firmly when patience (seconds) runs
        out.
        """
        self.dismiss()
        try:
            self._process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
