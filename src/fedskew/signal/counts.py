"""Label counts as they arrive from clients, checked once at the border."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedskew.errors import SignalError
from fedskew.types import Floats, Ints


def check_counts(counts: ArrayLike, where: str = "signal") -> Ints:
    """A (K, C) table of whole numbers >= 0, or an error that names the first bad client and class.

    >>> check_counts([[3, 0], [1, 2.0]]).tolist()
    [[3, 0], [1, 2]]
    >>> check_counts([[3, 0], [1, -2]])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedskew.errors.SignalError: signal: client 1, class 1: the count is negative (-2). Counts ...
    """
    table = _as_numbers(counts, where)
    if table.ndim != 2 or table.size == 0:
        raise SignalError(
            where,
            f"label counts have shape {table.shape}",
            "Give one row per client and one column per class",
        )
    for fault, bad in _faults(table):
        if bad.any():
            client, label = (int(i) for i in np.unravel_index(int(bad.argmax()), table.shape))
            what = f"client {client}, class {label}: the count is {fault} ({table[client, label]})"
            raise SignalError(where, what, "Counts are whole numbers, 0 or more")
    return table.astype(np.int64)


def proportions(counts: Floats | Ints) -> Floats:
    """Rows that sum to 1; a row of zeros stays a row of zeros."""
    sizes = counts.sum(axis=1, keepdims=True)
    shares: Floats = counts / np.where(sizes > 0, sizes, 1)
    return shares


def _as_numbers(counts: ArrayLike, where: str) -> np.ndarray:
    try:
        table = np.asarray(counts)
        return table if table.dtype.kind in "iufb" else table.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise SignalError(
            where,
            "label counts are not a table of numbers",
            "Give whole numbers, one row per client",
        ) from error


def _faults(table: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """What can be wrong with a count, in the order it is looked for.

    Comparisons with NaN are False, so NaN comes first.
    """
    return [
        ("not a finite number", ~np.isfinite(table)),
        ("negative", table < 0),
        ("a fraction", table != np.floor(table)),
        ("too large", table >= 2**53),  # beyond this a float no longer counts in ones
    ]
