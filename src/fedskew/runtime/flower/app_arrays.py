"""The model of somebody else's app: its ArrayRecord as one flat float32 vector, and back.

Integer arrays are counters, ``running_mean`` and ``running_var`` are BatchNorm's statistics, all
others are weights. The output layer is the last matrix with the vector that belongs to it, unless
the app's author names another; it lies behind the other weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedskew.errors import RecipeError
from fedskew.runtime.border import shown
from fedskew.runtime.flower.records import ForeignMessage, plain_array
from fedskew.runtime.flower.wire import ANY_DIMENSIONS, ANY_DTYPES
from fedskew.types import Layout, Params

STATISTICS = ("running_mean", "running_var")
Named = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class AppArrays:
    """What an app calls its arrays, and where each lies in the vector.

    >>> record = ArrayRecord({"w": Array(np.eye(2)), "b": Array(np.zeros(2, np.float32))})
    >>> form = AppArrays.of(record)
    >>> form.num_classes, form.vector(record).tolist()
    (2, [1.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    >>> form.record(np.arange(6, dtype=np.float32))["w"].numpy().dtype
    dtype('float64')
    """

    layout: Layout
    names: tuple[str, ...]  # in the app's own order
    blocks: Mapping[str, str]  # the app's name -> the layout's
    dtypes: Mapping[str, np.dtype[Any]]
    num_classes: int  # rows of the output layer; 0: there is none

    @classmethod
    def of(cls, record: ArrayRecord, output_layer: str = "") -> AppArrays:
        """The form of a model; ``output_layer`` names its output layer or that layer's weight."""
        try:
            arrays = _read(record)
        except ValueError as error:
            raise RecipeError("initial_arrays", str(error), "Give arrays of numbers") from None
        weight, bias = find_output(arrays, output_layer)
        blocks = {name: name for name in arrays}
        if bias and bias != f"{weight.removesuffix('weight')}bias":
            blocks |= {weight: "output.weight", bias: "output.bias"}
        last = [name for name in (weight, bias) if name]
        order = [name for name in arrays if name not in last] + last
        layout = Layout.of(
            [(blocks[name], arrays[name].shape, kind_of(name, arrays[name])) for name in order]
        )
        dtypes = {name: array.dtype for name, array in arrays.items()}
        classes = arrays[weight].shape[0] if weight else 0
        return cls(layout, tuple(arrays), blocks, dtypes, classes)

    def vector(self, record: Mapping[str, Array]) -> Params:
        """The flat vector of a record of the same arrays; ForeignMessage for any other."""
        if set(record) != set(self.names):
            wrong = sorted(set(record) ^ set(self.names))
            what = f"other arrays than it was sent: {', '.join(shown(name) for name in wrong[:3])}"
            raise ForeignMessage("reply", what)
        try:
            arrays = _read(record)
        except ValueError as error:
            raise ForeignMessage("reply", str(error)) from None
        vector = np.empty(self.layout.size, np.float32)
        for name, array in arrays.items():
            block = self.layout[self.blocks[name]]
            if array.shape != block.shape:
                what = f"wrong shape of '{shown(name)}': {array.shape} instead of {block.shape}"
                raise ForeignMessage("reply", what)
            with np.errstate(over="ignore", invalid="ignore"):  # the border refuses infinities
                vector[block.offset : block.stop] = array.reshape(-1)
        return vector

    def record(self, vector: Params) -> ArrayRecord:
        """The app's own arrays, in its order and types."""
        parts = self.layout.unpack(vector)
        return ArrayRecord(
            {name: Array(self._typed(name, parts[self.blocks[name]])) for name in self.names}
        )

    def _typed(self, name: str, part: Params) -> NDArray[Any]:
        dtype = self.dtypes[name]
        whole = np.rint(part) if dtype.kind in "iub" else part
        return np.ascontiguousarray(whole).astype(dtype).reshape(part.shape)


def kind_of(name: str, array: NDArray[Any]) -> str:
    """What the loop does with an array: train it, average it, or take the largest."""
    if array.dtype.kind in "iub":
        return "counter"
    return "buffer" if name.endswith(STATISTICS) else "weight"


def find_output(arrays: Named, named: str = "") -> tuple[str, str]:
    """Names of the output layer's weight and bias, "" where there is none.

    >>> body, head = np.zeros((4, 8)), np.zeros((3, 4))
    >>> find_output({"a.weight": body, "z.weight": head, "z.bias": np.zeros(3)})
    ('z.weight', 'z.bias')
    >>> find_output({"0": body, "1": np.zeros(4), "2": head, "3": np.zeros(3)})
    ('2', '3')
    """
    if named:
        weight = next((name for name in (named, f"{named}.weight") if name in arrays), "")
        if not weight or arrays[weight].ndim != 2:
            what = f"'{named}' is no matrix of initial_arrays"
            raise RecipeError("output_layer", what, f"Name one of: {', '.join(_matrices(arrays))}")
    else:
        weight = next(reversed(_matrices(arrays)), "")
    if not weight:
        return "", ""
    names = list(arrays)
    behind = names[names.index(weight) + 1 :][:1]
    for name in (f"{weight.removesuffix('weight')}bias", *behind):
        if name in arrays and name != weight and arrays[name].shape == arrays[weight].shape[:1]:
            return weight, name
    return weight, ""


def _matrices(arrays: Named) -> list[str]:
    return [name for name, a in arrays.items() if a.ndim == 2 and kind_of(name, a) == "weight"]


def _read(record: Mapping[str, Array]) -> dict[str, NDArray[Any]]:
    return {name: plain_array(a, ANY_DTYPES, ANY_DIMENSIONS) for name, a in record.items()}
