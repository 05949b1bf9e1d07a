"""What robust rules share: how far each end has moved, and a model that has taken a step.

Weights and float buffers (BatchNorm statistics) are judged and merged alike: what a rule does not
look at, a hostile client could fill with anything. For the same reason integer counters take the
median (the lower one) and not FedAvg's maximum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedskew.types import Ends, Floats, Params


def moves(model: Params, ends: Ends) -> Params:
    """(n, F) what each end has changed in weights and float buffers."""
    n = ends.layout.num_floats
    return np.asarray(ends.params[:, :n] - model[:n], np.float32)


def lengths(rows: Params) -> Floats:
    """(n,) the length of each row; in 64 bits, so that an update of 1e30 has one too.

    >>> lengths(np.array([[3, 4], [0, 1]], np.float32))
    array([5., 1.])
    """
    return np.array([np.linalg.norm(row.astype(np.float64)) for row in rows], np.float64)


def products(rows: Params) -> Floats:
    """(n, n) the inner product of every pair of rows, in 64 bits."""
    wide = rows.astype(np.float64)
    return np.asarray(wide @ wide.T, np.float64)


def stepped(model: Params, ends: Ends, step: Params) -> Params:
    """The model moved by ``step`` (F,); counters take the lower median of the ends."""
    n, moved = ends.layout.num_floats, np.array(model, np.float32)
    moved[:n] += step
    moved[n:] = np.sort(ends.params[:, n:], axis=0)[(len(ends.params) - 1) // 2]
    return moved


def recent(seen: Any, new: Floats, window: int) -> Floats:
    """The last ``window`` lengths, and in any case all of this round.

    >>> recent([1.0, 2.0, 3.0], np.array([4.0]), 2)
    array([3., 4.])
    """
    known = np.asarray([] if seen is None else seen, np.float64)
    return np.concatenate([known, new])[-max(window, len(new)) :]


def shortened(long: Floats, limit: float) -> Floats:
    """(n,) by what each row is multiplied so that none is longer than ``limit``.

    >>> shortened(np.array([1.0, 4.0, 0.0]), 2.0)
    array([1. , 0.5, 1. ])
    """
    return limit / np.maximum(np.maximum(long, limit), np.finfo(np.float64).tiny)
