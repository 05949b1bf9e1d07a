"""Every client gets a random sample of everything: no skew at all (docs/methods.md 1.1).

``iid`` permutes all examples and cuts them into equal parts. ``iid_stratified`` does so class by
class, so that every client holds an equal number of each class (up to one); the clients that get
one more take turns, so sizes differ by one at most.
"""

from __future__ import annotations

import numpy as np

from .partition import Partition, Pool, check, deal, equal_shares, from_client_ids


def iid(pool: Pool, clients: int, rng: np.random.Generator) -> Partition:
    """Equal parts of a random permutation."""
    check(pool, clients, "iid")
    owner = np.empty(pool.size, np.int64)
    owner[rng.permutation(pool.size)] = np.repeat(
        np.arange(clients), equal_shares(pool.size, clients)
    )
    return from_client_ids(owner, clients=clients)


def iid_stratified(pool: Pool, clients: int, rng: np.random.Generator) -> Partition:
    """Equal parts of every class."""
    check(pool, clients, "iid_stratified")
    sizes = pool.class_sizes
    starts = np.cumsum(sizes) - sizes
    columns = [
        equal_shares(int(size), clients, int(start) % clients)
        for size, start in zip(sizes, starts, strict=True)
    ]
    return deal(pool, np.stack(columns, axis=1), rng)
