"""A model as one flat vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from fedskew.types.arrays import Params


@dataclass(frozen=True)
class Block:
    """One named tensor inside the flat model vector."""

    name: str
    shape: tuple[int, ...]
    offset: int
    # trained | averaged (BatchNorm statistics) | integer, takes the maximum
    kind: Literal["weight", "buffer", "counter"]

    @cached_property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def stop(self) -> int:
        """Offset of the first number behind it."""
        return self.offset + self.size


@dataclass(frozen=True)
class Layout:
    """Where each tensor of a model lies in its flat float32 vector: weights, buffers, counters.

    >>> layout = Layout.of([("w", (2, 3), "weight"), ("b", (2,), "weight")])
    >>> layout.size, layout.bytes, layout["b"].offset
    (8, 32, 6)
    """

    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, tensors: Sequence[tuple[str, Sequence[int], str]]) -> Layout:
        """Lay tensors (name, shape, kind) out one behind the other, weights first."""
        order = {"weight": 0, "buffer": 1, "counter": 2}
        blocks: list[Block] = []
        for name, shape, kind in sorted(tensors, key=lambda t: order[t[2]]):
            blocks.append(Block(name, tuple(shape), blocks[-1].stop if blocks else 0, kind))  # type: ignore[arg-type]
        return cls(tuple(blocks))

    def __getitem__(self, name: str) -> Block:
        return next(block for block in self.blocks if block.name == name)

    @cached_property
    def size(self) -> int:
        """D, the length of the flat vector."""
        return self.blocks[-1].stop if self.blocks else 0

    @cached_property
    def num_weights(self) -> int:
        """How many numbers at the front of the vector are trained."""
        return sum(block.size for block in self.blocks if block.kind == "weight")

    @cached_property
    def num_floats(self) -> int:
        """How many numbers at the front are trained or averaged: all but the integer counters."""
        return self.size - sum(block.size for block in self.blocks if block.kind == "counter")

    @cached_property
    def signless(self) -> tuple[Block, ...]:
        """Tensors that cannot hold a negative number: counters, and BatchNorm's variances."""
        return tuple(
            block
            for block in self.blocks
            if block.size
            and (
                block.kind == "counter"
                or (block.kind == "buffer" and block.name.endswith("running_var"))
            )
        )

    @cached_property
    def bytes(self) -> int:
        """Bytes of one serialised model: 4 per float, 8 per integer counter (docs/methods.md
        9.1).
        """
        return sum(block.size * (8 if block.kind == "counter" else 4) for block in self.blocks)

    def head(self, num_classes: int) -> tuple[Block, Block | None] | None:
        """Weight and bias of the output layer: the last matrix with a row per class, and its
        vector; None: there is no such matrix.
        """
        matrices = [
            b
            for b in self.blocks
            if b.kind == "weight" and len(b.shape) == 2 and b.shape[0] == num_classes
        ]
        if not matrices:
            return None
        name = matrices[-1].name.removesuffix("weight") + "bias"
        biases = (b for b in self.blocks if b.name == name and b.shape == (num_classes,))
        return matrices[-1], next(biases, None)

    def unpack(self, vector: Params) -> dict[str, Params]:
        """Named arrays that share the vector's memory."""
        return {b.name: vector[b.offset : b.stop].reshape(b.shape) for b in self.blocks}
