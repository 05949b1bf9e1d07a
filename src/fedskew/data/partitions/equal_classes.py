"""Every client holds equally many examples of each of ``classes_per_client`` classes
(docs/methods.md 1.6).

The setting of AFLS (paper 003): D examples per device, D / k of each of its k classes. ``owners =
"balanced"`` gives every class the same number of owners, up to one: the only reading under which
all data together stay IID and the paper's skew figure holds. ``"random"`` lets each client draw its
classes freely; D then shrinks to what the most wanted class can serve.

Differs from the plain reading of docs/methods.md 1.6: D is k * floor(min_c n_c / owners_c), not
floor(k * min_c ...), because D / k must be a whole number.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ...errors import DataError, InfeasiblePartition
from .ownership import balanced, check_classes, scattered
from .partition import Partition, Pool, check, deal


def equal_classes(
    pool: Pool,
    clients: int,
    rng: np.random.Generator,
    *,
    classes_per_client: int = 2,
    owners: Literal["balanced", "random"] = "balanced",
    size: int = 0,
) -> Partition:
    """Equal sizes, equal parts of each class held; ``size`` examples each, 0 = as many as fit."""
    where = "partition equal_classes"
    check(pool, clients, "equal_classes")
    check_classes(classes_per_client, pool.num_classes, where)
    if owners not in ("balanced", "random") or size < 0 or size % classes_per_client:
        raise DataError(
            where,
            f"owners = '{owners}', size = {size}",
            "Use 'balanced' or 'random', a multiple of classes_per_client",
        )
    if owners == "balanced":
        table = balanced(clients, pool.num_classes, classes_per_client, rng)
    else:
        table = scattered(clients, pool.num_classes, classes_per_client, rng, anchored=False)
    num_owners = table.sum(axis=0)
    most = int((pool.class_sizes[num_owners > 0] // num_owners[num_owners > 0]).min())
    each = size // classes_per_client or most
    if not 0 < each <= most:
        what = f"a client can hold {most} examples of each class, {each} are asked for"
        raise InfeasiblePartition(
            where, what, "Ask for less, or for fewer clients", best=table * most
        )
    return deal(pool, table * each, rng)
