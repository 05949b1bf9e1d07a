"""Shared memory in which workers find the models to begin with, and write trained ones: nobody
copies them afterwards.

A block is taken for one call and comes back when the last array on it is gone: replies may be kept
as long as anyone likes.
"""

from __future__ import annotations

import mmap
import weakref
from dataclasses import dataclass, field
from typing import IO

import numpy as np

from fedskew.runtime.local.store import anonymous_file
from fedskew.types import Params

# blocks kept for the next call: models in, corrections in, replies out; these often live into the
# next round
SPARE = 4


@dataclass(eq=False)
class Block:
    """Room for ``rows`` models."""

    number: int
    rows: int
    width: int
    file: IO[bytes] = field(repr=False)

    def __post_init__(self) -> None:
        self._memory = mmap.mmap(self.file.fileno(), 4 * self.rows * self.width)

    def array(self, rows: int) -> Params:
        """The first ``rows`` models as one array of its own."""
        return np.ndarray((rows, self.width), np.float32, buffer=self._memory)


class Blocks:
    """All blocks of a team, in use or spare.

    >>> blocks = Blocks()
    >>> block, array = blocks.take(2, width=3)
    >>> array.shape, len(blocks.spare)
    ((2, 3), 0)
    >>> del array
    >>> len(blocks.spare), blocks.take(1, width=3)[0] is block
    (1, True)
    >>> blocks.close()
    """

    def __init__(self) -> None:
        self._count = 0
        self.blocks: dict[int, Block] = {}
        self.spare: list[Block] = []

    def take(self, rows: int, width: int) -> tuple[Block, Params]:
        """A block with at least this many rows, and an array on it. The block is spare again
        when the array is gone.
        """
        fitting = [b for b in self.spare if b.rows >= rows and b.width == width]
        block = min(fitting, key=lambda b: b.rows, default=None)
        if block is None:
            block = self._add(rows, width)
        else:
            self.spare.remove(block)
        array = block.array(rows)
        weakref.finalize(array, self.spare.append, block).atexit = False
        return block, array

    def _add(self, rows: int, width: int) -> Block:
        self._count += 1
        block = Block(self._count, max(1, rows), width, anonymous_file(4 * max(1, rows) * width))
        self.blocks[block.number] = block
        return block

    def shed(self) -> list[int]:
        """Drop spare blocks beyond a few; returns their numbers, so that workers drop them too."""
        dropped = []
        while len(self.spare) > SPARE:
            block = self.spare.pop(0)
            del self.blocks[block.number]
            block.file.close()
            dropped.append(block.number)
        return dropped

    def close(self) -> None:
        """Let go of the files. Arrays that are still in use stay valid."""
        for block in self.blocks.values():
            block.file.close()
