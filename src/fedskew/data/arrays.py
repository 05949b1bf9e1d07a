"""Datasets from arrays; :mod:`fedskew.data.given` makes arrays of all else that people have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import DataError
from ..types import Ints, Params
from .dataset import CHUNK_ROWS, Dataset
from .images import Channels, channels_last


def from_arrays(
    x: ArrayLike,
    y: ArrayLike,
    x_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    *,
    name: str = "custom",
    num_classes: int | None = None,
    class_names: tuple[str, ...] | None = None,
    mean: ArrayLike | None = None,
    std: ArrayLike | None = None,
    columns: Mapping[str, ArrayLike] | None = None,
    default_model: str = "",
    license: str = "",
    source: str = "given arrays",
    vocab_size: int | None = None,
    words: int | None = None,
    channels: Channels = "last",
) -> Dataset:
    """A :class:`Dataset` from arrays in memory; ``channels``: where images have theirs.

    Labels may be anything sortable; they become 0..C-1 in sorted order. With ``num_classes`` given
    they must already be integers 0..num_classes-1 and stay as they are, so a class may then have no
    example.

    >>> data = from_arrays([[1.0, 5.0], [3.0, 5.0]], ["dog", "cat"])
    >>> data.y.tolist(), data.class_names, data.mean.tolist(), data.std.tolist()
    ([1, 0], ('cat', 'dog'), [2.0, 5.0], [1.0, 1.0])
    """
    rows = as_rows(x, name, channels)
    test = rows[:0] if x_test is None else as_rows(x_test, name, channels)
    labels, test_labels, names = remap(y, [] if y_test is None else y_test, num_classes, name)
    tokens = rows.dtype.kind in "iu" and rows.dtype != np.uint8
    fitted = mean is None and std is None and not tokens
    fit = fit_scale(rows) if fitted else (None, None)
    return Dataset(
        name=name,
        x=rows,
        y=labels,
        x_test=test,
        y_test=test_labels,
        num_classes=len(names),
        class_names=class_names or names,
        mean=fit[0] if mean is None else np.asarray(mean, np.float32),
        std=fit[1] if std is None else np.asarray(std, np.float32),
        columns={key: np.asarray(value) for key, value in (columns or {}).items()},
        default_model=default_model,
        license=license,
        source=source,
        scale="fitted" if fitted else "fixed",
        vocab_size=_vocab_size(rows, test) if tokens and vocab_size is None else vocab_size,
        words=words,
    )


# ---------------------------------------------------------------- rows, labels and their scale


def as_rows(x: ArrayLike, name: str, channels: Channels = "last") -> NDArray[Any]:
    """``x`` as uint8, float32 or integer rows, channels last; anything else is refused."""
    rows = np.asarray(x)
    if channels == "first":
        rows = channels_last(rows, f"data {name}", channels)
    if rows.ndim < 2:
        raise DataError(f"data {name}", f"x has shape {rows.shape}", "Give one row per example")
    if rows.dtype == np.bool_ or rows.dtype.kind == "f":
        return rows.astype(np.float32, copy=False)
    if rows.dtype == np.uint8 or (rows.dtype in (np.int32, np.int64) and rows.ndim == 2):
        return rows
    if rows.dtype.kind in "iu" and rows.ndim == 2:
        return rows.astype(np.int64)
    raise DataError(
        f"data {name}",
        f"x is {rows.dtype} of shape {rows.shape}",
        "Give uint8 images, floats or (N, L) token ids",
    )


def remap(
    y: ArrayLike, y_test: ArrayLike, num_classes: int | None, name: str
) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Labels as 0..C-1 with their names."""
    labels, test = np.asarray(y), np.asarray(y_test)
    if num_classes is not None:
        if labels.dtype.kind not in "iu" or (test.size and test.dtype.kind not in "iu"):
            raise DataError(
                f"data {name}",
                "labels are not integers",
                "Leave num_classes out to have them numbered",
            )
        return (
            labels.astype(np.int64),
            test.astype(np.int64),
            tuple(str(c) for c in range(num_classes)),
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise DataError(f"data {name}", "labels hold NaN or infinity", "Drop those rows")
    if test.size and (labels.dtype.kind in "iub") != (test.dtype.kind in "iub"):
        raise DataError(
            f"data {name}",
            f"training labels are {labels.dtype}, test labels {test.dtype}",
            "Use one type for both",
        )
    all_labels = np.concatenate([labels, test]) if test.size else labels
    values, codes = np.unique(all_labels, return_inverse=True)
    return codes[: len(labels)], codes[len(labels) :], tuple(str(v) for v in values)


def fit_scale(x: NDArray[Any], rows: Ints | None = None) -> tuple[Params, Params]:
    """Mean and standard deviation of ``x`` (or of some rows), per column or channel.

    Of uint8 they are in units of 255.

    A constant column gets std 1. Two passes in float64, a chunk at a time.

    >>> [float(v) for v in fit_scale(np.array([[[0, 255]]], np.uint8))]
    [0.5, 0.5]
    """
    rows = np.arange(len(x)) if rows is None else rows
    axes = tuple(range(x.ndim)) if x.ndim == 3 else tuple(range(x.ndim - 1))
    unit = 255.0 if x.dtype == np.uint8 else 1.0
    count = max(len(rows) * int(np.prod([x.shape[a] for a in axes[1:]], dtype=np.int64)), 1)
    chunks = [rows[i : i + CHUNK_ROWS] for i in range(0, len(rows), CHUNK_ROWS)]
    mean = sum((x[c].sum(axis=axes, dtype=np.float64) for c in chunks), start=np.zeros(())) / count
    var = sum(((x[c] - mean) ** 2).sum(axis=axes) for c in chunks) / count
    std = np.sqrt(var)
    return np.asarray(mean / unit, np.float32), np.asarray(
        np.where(std > 0, std, unit) / unit, np.float32
    )


def _vocab_size(*arrays: NDArray[Any]) -> int:
    return 1 + max((int(a.max()) for a in arrays if a.size), default=1)
