"""A dataset: a labelled training set, perhaps a test set, and columns that name natural clients.

The pixels, numbers or token ids are kept once, in the form they came in (uint8 images stay uint8),
and usually stay on disk: a cached dataset is memory-mapped, so several processes share one copy.
Standardising happens later, in the engine:

==============  =========================  ==========================  =========================
``x``           shape                      what the engine feeds       ``mean`` and ``std``
==============  =========================  ==========================  =========================
uint8           (N, H, W) or (N, H, W, C)  ``(x / 255 - mean) / std``  scalar or one per channel
float32         (N, d) or images           ``(x - mean) / std``        one per column or channel
int32 or int64  (N, L) token ids           ``x`` as it is              None
==============  =========================  ==========================  =========================

Token id 0 is padding, 1 an unknown word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..foreign import LONGEST_NAME, printable
from ..types import Ints, Params, frozen

# rows read at a time when a pass over x is needed, so that a mapped file never has to fit in memory
CHUNK_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training rows, test rows and what is known about them.

    See the module text for the three kinds of ``x``.
    """

    name: str
    x: NDArray[Any]  # (N, ...)
    y: Ints  # (N,) labels 0..C-1
    x_test: NDArray[Any]  # (M, ...), M = 0: no official test set
    y_test: Ints  # (M,)
    num_classes: int
    class_names: tuple[str, ...]
    mean: Params | None = None
    std: Params | None = None
    # name -> (N,) values that may name clients
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    default_model: str = ""
    license: str = ""
    source: str = ""
    # fitted: mean and std come from x; fit again when rows of x become test rows
    scale: Literal["fixed", "fitted"] = "fixed"
    vocab_size: int | None = None  # token ids are below this
    # ids number this many words; when clients are built the training rows' most frequent
    # vocab_size stay
    words: int | None = None

    def __post_init__(self) -> None:
        for name, dtype in {"x": None, "y": np.int64, "x_test": None, "y_test": np.int64}.items():
            object.__setattr__(self, name, frozen(getattr(self, name), dtype))
        for name in ("mean", "std"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, frozen(getattr(self, name), np.float32))
        object.__setattr__(
            self, "columns", {key: frozen(value) for key, value in self.columns.items()}
        )
        # they come from files and stand in tables and pages
        names = tuple(printable(str(name), LONGEST_NAME) for name in self.class_names)
        object.__setattr__(self, "class_names", names)
        _check(self)

    @property
    def kind(self) -> Literal["image", "table", "tokens"]:
        """How a model must read ``x``."""
        if self.x.dtype.kind in "iu" and self.x.dtype != np.uint8:
            return "tokens"
        return "table" if self.x.ndim == 2 else "image"


def describe(dataset: Dataset) -> dict[str, Any]:
    """Facts to print: shapes, label counts, bytes.

    >>> from fedskew.data import from_arrays
    >>> facts = describe(from_arrays([[1.0], [3.0]], ["dog", "cat"]))
    >>> facts["examples"], facts["shape"], facts["class_counts"]
    (2, (1,), {'cat': 1, 'dog': 1})
    """

    def count(labels: Ints) -> dict[str, int]:
        sizes = np.bincount(labels, minlength=dataset.num_classes).tolist()
        return dict(zip(dataset.class_names, sizes, strict=True))

    return {
        "name": dataset.name,
        "kind": dataset.kind,
        "examples": len(dataset.y),
        "test_examples": len(dataset.y_test),
        "shape": dataset.x.shape[1:],
        "dtype": str(dataset.x.dtype),
        "classes": dataset.num_classes,
        "class_counts": count(dataset.y),
        "test_class_counts": count(dataset.y_test),
        "mean": None if dataset.mean is None else dataset.mean.tolist(),
        "std": None if dataset.std is None else dataset.std.tolist(),
        "columns": {key: len(np.unique(value)) for key, value in dataset.columns.items()},
        "bytes": sum(a.nbytes for a in (dataset.x, dataset.y, dataset.x_test, dataset.y_test)),
        "default_model": dataset.default_model,
        "license": dataset.license,
        "source": dataset.source,
    }


# ---------------------------------------------------------------- checks at the border


def _check(data: Dataset) -> None:
    where = f"data {data.name}"
    for what, rows, labels in (("training", data.x, data.y), ("test", data.x_test, data.y_test)):
        if len(rows) != len(labels) or labels.ndim != 1:
            raise DataError(
                where,
                f"{len(rows)} {what} rows but labels of shape {labels.shape}",
                "Give one label per row",
            )
        if labels.size and not 0 <= labels.min() <= labels.max() < data.num_classes:
            raise DataError(
                where,
                f"{what} labels run from {labels.min()} to {labels.max()}",
                f"They must be 0..{data.num_classes - 1}",
            )
        _check_values(where, what, rows, data)
    if len(data.class_names) != data.num_classes:
        raise DataError(
            where, f"{len(data.class_names)} class names for {data.num_classes} classes"
        )
    if len(data.x_test) and (data.x_test.shape[1:], data.x_test.dtype) != (
        data.x.shape[1:],
        data.x.dtype,
    ):
        raise DataError(
            where,
            f"training rows are {data.x.shape[1:]}, test rows {data.x_test.shape[1:]}",
            "Make them alike",
        )
    _check_scale(where, data)
    for name, column in data.columns.items():
        if column.shape != data.y.shape:
            raise DataError(
                where,
                f"column {name} has shape {column.shape}",
                f"It needs one value for each of {len(data.y)} rows",
            )


def _check_values(where: str, what: str, rows: NDArray[Any], data: Dataset) -> None:
    if rows.dtype.kind == "f":
        for start in range(0, len(rows), CHUNK_ROWS):
            if not np.isfinite(rows[start : start + CHUNK_ROWS]).all():
                raise DataError(
                    where, f"{what} rows hold NaN or infinity", "Drop or fill those values"
                )
    elif (
        data.kind == "tokens"
        and rows.size
        and not 0 <= rows.min() <= rows.max() < (data.words or data.vocab_size or np.inf)
    ):
        raise DataError(
            where,
            f"token ids run from {rows.min()} to {rows.max()}",
            "Give a table as floats, ids as 0..vocab_size-1",
        )


def _check_scale(where: str, data: Dataset) -> None:
    if (data.mean is None) != (data.std is None):
        raise DataError(where, "only one of mean and std is given", "Give both or neither")
    if data.mean is None or data.std is None:
        return
    allowed = {(), (data.x.shape[-1],)} if data.x.ndim != 3 else {()}
    if data.mean.shape not in allowed or data.std.shape not in allowed:
        raise DataError(
            where,
            f"mean {data.mean.shape} and std {data.std.shape} do not fit x",
            f"Shapes allowed: {allowed}",
        )
    if not (np.isfinite(data.mean).all() and (data.std > 0).all() and np.isfinite(data.std).all()):
        raise DataError(
            where,
            "mean or std is not finite, or a std is not positive",
            "Use std 1 for a constant column",
        )
