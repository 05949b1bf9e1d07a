"""Where workers find their next task: one number in shared memory that says how many of a list of
tasks are taken.

All workers get the whole list at once and help themselves, so that between two clients nobody waits
for the parent process, and the parent does not wake up on a core on which a client is training
(0.3-0.5 ms a client when it handed out tasks one by one).
"""

from __future__ import annotations

import os
from typing import IO

import numpy as np

NOTHING = -1


class Board:
    """The number of tasks taken, then what each worker took last.

    >>> from fedskew.runtime.local.store import anonymous_file
    >>> board = Board(anonymous_file(Board.size(workers=2)), workers=2)
    >>> board.clear()
    >>> [board.take(worker=1, tasks=2) for _ in range(3)], board.last(1), board.last(0)
    ([0, 1, -1], 1, -1)
    >>> board.close()
    """

    def __init__(self, file: IO[bytes], workers: int) -> None:
        self._file, self.workers = file, workers
        self._numbers = np.memmap(file, np.int64, "r+", shape=(1 + workers,))

    @staticmethod
    def size(workers: int) -> int:
        """Bytes of its file."""
        return 8 * (1 + workers)

    @classmethod
    def inherited(cls, descriptor: int, workers: int) -> Board:
        """The board of the parent process, in a worker."""
        return cls(os.fdopen(descriptor, "r+b"), workers)

    @property
    def descriptor(self) -> int:
        """What a worker inherits."""
        return self._file.fileno()

    def clear(self) -> None:
        """A new list: nothing is taken. Only while every worker waits."""
        self._numbers[0], self._numbers[1:] = 0, NOTHING

    def take(self, worker: int, tasks: int) -> int:
        """The next of a list of this many tasks, or NOTHING. The kernel frees the lock of a
        worker that dies with it.
        """
        import fcntl  # where there is none, everything is trained in one process

        # of the process, not of the open file: the workers inherited one open file
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            position = int(self._numbers[0])
            if position >= tasks:
                return NOTHING
            self._numbers[1 + worker] = position
            self._numbers[0] = position + 1
            return position
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def last(self, worker: int) -> int:
        """What this worker took last, or NOTHING."""
        return int(self._numbers[1 + worker])

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
