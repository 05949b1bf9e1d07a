"""Clients as the data have them: one per state, patient, camera site or writer.

``clients = 0`` makes one client of every distinct value (in sorted order). Otherwise, with ``rest =
"drop"``, the largest groups become clients and the others are dropped; with ``rest = "merge"``
every group is kept whole and joins the client that is smallest so far, largest groups first, so
that clients are unions of groups of nearly equal size.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from ...errors import DataError, did_you_mean
from ...types import Ints
from .partition import Partition, Pool, from_client_ids


def natural(
    pool: Pool,
    clients: int,
    rng: np.random.Generator,
    *,
    column: str,
    rest: Literal["drop", "merge"] = "drop",
    min_size: int = 1,
) -> Partition:
    """Clients from a column of the pool.

    Groups below ``min_size`` are dropped first; nothing is random.
    """
    where = "partition natural"
    if column not in pool.columns:
        raise DataError(
            where,
            f"the examples to divide have no column '{column}'",
            did_you_mean(column, pool.columns),
        )
    if rest not in ("drop", "merge") or clients < 0:
        raise DataError(
            where, f"rest = '{rest}', clients = {clients}", "Use 'drop' or 'merge', 0 or more"
        )
    values, group = np.unique(pool.columns[column], return_inverse=True)
    sizes = np.bincount(group, minlength=len(values))
    usable = np.flatnonzero(sizes >= min_size)
    num_clients = clients or len(usable)
    if not 0 < num_clients <= len(usable):
        raise DataError(
            where,
            f"{column} has {len(usable)} groups of {min_size} or more examples",
            f"Ask for {len(usable)} clients or fewer",
        )
    by_size = usable[np.argsort(-sizes[usable], kind="stable")]
    client_of = np.full(len(values), -1, np.int64)
    if rest == "merge" and num_clients < len(usable):
        client_of[by_size] = _merge(sizes[by_size], num_clients)
        return from_client_ids(client_of[group], clients=num_clients)
    kept = np.sort(by_size[:num_clients])
    client_of[kept] = np.arange(num_clients)
    return dataclasses.replace(
        from_client_ids(client_of[group], clients=num_clients),
        names=tuple(str(v) for v in values[kept]),
    )


def _merge(sizes: Ints, clients: int) -> Ints:
    """Each group in turn joins the smallest client so far."""
    load = np.zeros(clients, np.int64)
    joined = np.empty(len(sizes), np.int64)
    for i, size in enumerate(sizes):
        joined[i] = load.argmin()
        load[joined[i]] += size
    return joined
