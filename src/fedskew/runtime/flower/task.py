"""What a user brings to a fleet: the data of one client, the data of the server, the model. All
three are functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedskew.errors import DataError
from fedskew.runtime.local.store import Store
from fedskew.types import Ints, Params, frozen

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class FleetSettings:
    """What both sides know of a run: the resolved recipe, the seed, and Flower's run
    configuration.
    """

    recipe: Mapping[str, Any]
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ClientData:
    """The examples of one client, or those the server tests on. Shapes as in
    :mod:`fedskew.data.dataset`.
    """

    x: NDArray[Any]  # (n, ...) uint8 images | float32 tables | integer tokens
    y: Ints  # (n,) labels 0..C-1
    x_test: NDArray[Any] | None = None
    y_test: Ints | None = None
    mean: Params | None = None  # subtracted from x; every side must use the same
    std: Params | None = None


@dataclass(frozen=True)
class Task:
    """The three functions of a user's ``task.py`` and the number of classes."""

    num_classes: int
    # one client's examples, called at that client only
    load_data: Callable[[int, FleetSettings], ClientData]
    build_model: Callable[[FleetSettings], nn.Module]
    # the server's: its test set, its auxiliary set as x, y
    load_test: Callable[[FleetSettings], ClientData] | None = None


def client_store(client: int, data: ClientData, num_classes: int) -> Store:
    """One client's examples in the form the trainer reads; everybody else in it is empty.

    >>> store = client_store(2, ClientData(np.zeros((3, 4), np.float32), np.array([1, 0, 1])), 2)
    >>> store.rows(2, "train"), store.rows(0, "train"), store.label_counts()[2]
    (array([0, 1, 2]), array([], dtype=int64), array([1, 2]))
    """
    x, y = _checked(f"client {client}", data.x, data.y, num_classes)
    x_test, y_test = _test_rows(f"client {client}", data, x, num_classes)
    return Store(
        x=x, y=y, train_order=np.arange(len(y)), train_offsets=_alone(client, len(y)),
        x_test=x_test, y_test=y_test, central_order=np.empty(0, np.int64),
        test_order=np.arange(len(y_test)), test_offsets=_alone(client, len(y_test)),
        num_classes=num_classes, mean=data.mean, std=data.std,
    )  # fmt: skip


def server_store(data: ClientData | None, num_classes: int) -> Store:
    """The server's own examples: a central test set, and its auxiliary set as training rows that
    no client owns.
    """
    empty = ClientData(np.zeros((0, 1), np.float32), np.empty(0, np.int64))
    data = data or empty
    x, y = _checked("the server", data.x, data.y, num_classes)
    x_test, y_test = _test_rows("the server", data, x, num_classes)
    none = np.empty(0, np.int64)
    return Store(
        x=x, y=y, train_order=none, train_offsets=np.zeros(1, np.int64),
        x_test=x_test, y_test=y_test, central_order=np.arange(len(y_test)),
        test_order=none, test_offsets=np.zeros(1, np.int64),
        num_classes=num_classes, auxiliary_order=np.arange(len(y)), mean=data.mean, std=data.std,
    )  # fmt: skip


def _alone(client: int, size: int) -> Ints:
    offsets = np.zeros(client + 2, np.int64)
    offsets[-1] = size
    return offsets


def _test_rows(
    where: str, data: ClientData, x: NDArray[Any], num_classes: int
) -> tuple[NDArray[Any], Ints]:
    if data.x_test is None or data.y_test is None:
        return x[:0], np.empty(0, np.int64)
    return _checked(where, data.x_test, data.y_test, num_classes)


def _checked(where: str, x: NDArray[Any], y: Ints, num_classes: int) -> tuple[NDArray[Any], Ints]:
    x, labels = np.asarray(x), np.asarray(y)
    if len(x) != len(labels) or labels.ndim != 1:
        raise DataError(
            where,
            f"{len(x)} examples but labels of shape {labels.shape}",
            "Give one label per example",
        )
    if labels.size and not 0 <= labels.min() <= labels.max() < num_classes:
        found = f"labels run from {labels.min()} to {labels.max()}"
        raise DataError(where, found, f"They must be 0..{num_classes - 1}")
    whole = np.ascontiguousarray(x.astype(np.float32) if x.dtype == np.float64 else x)
    return frozen(whole), frozen(labels, np.int64)  # read-only, as the arrays of a dataset are
