"""Every client holds ``classes_per_client`` classes; owners of a class share it (docs/methods.md
1.5).

The class-constrained partition CCDD(Φ) of BACSA (paper 001), which gives only the idea; the rule is
``#label`` of NIID-Bench (Li et al., ICDE 2022). Each class is split equally among its owners.
``balanced_owners = True`` (our default) gives every class the same number of owners, up to one;
False is NIID-Bench's draw: client i owns class i mod C and random others, so sizes differ more.
"""

from __future__ import annotations

import numpy as np

from ...errors import DataError
from ...types import Bools, Ints
from .ownership import balanced, check_classes, scattered
from .partition import Partition, Pool, check, deal, equal_shares


def class_limited(
    pool: Pool,
    clients: int,
    rng: np.random.Generator,
    *,
    classes_per_client: int = 2,
    balanced_owners: bool = True,
) -> Partition:
    """Exactly ``classes_per_client`` classes for every client."""
    where = "partition class_limited"
    num_classes = pool.num_classes
    check(pool, clients, "class_limited")
    check_classes(classes_per_client, num_classes, where)
    needed = -(-num_classes // classes_per_client) if balanced_owners else num_classes
    if clients < needed:
        raise DataError(
            where,
            f"{clients} clients leave a class without an owner",
            f"Ask for {needed} clients or more",
        )
    if balanced_owners:
        table = balanced(clients, num_classes, classes_per_client, rng)
    else:
        table = scattered(clients, num_classes, classes_per_client, rng, anchored=True)
    return deal(pool, _split(table, pool.class_sizes, where), rng)


def _split(table: Bools, class_sizes: Ints, where: str) -> Ints:
    counts = np.zeros(table.shape, np.int64)
    for label, size in enumerate(class_sizes.tolist()):
        owners = np.flatnonzero(table[:, label])
        if size < len(owners):
            raise DataError(
                where,
                f"class {label} has {size} examples for {len(owners)} owners",
                "Ask for fewer clients or classes",
            )
        counts[owners, label] = equal_shares(size, len(owners))
    return counts
