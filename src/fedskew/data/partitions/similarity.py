"""A share S is dealt at random, the rest sorted by label, one block per client (docs/methods.md
1.4).

Karimireddy et al., "SCAFFOLD" (ICML 2020), section 7; as used by Clust-PSI-PFL (paper 004). S = 1
is IID; with S = 0 and balanced classes every client holds one class. What does not divide evenly
(fewer than 2 K examples) is dropped and reported.
"""

from __future__ import annotations

import numpy as np

from ...errors import DataError
from .partition import Partition, Pool, check, from_client_ids


def similarity(
    pool: Pool, clients: int, rng: np.random.Generator, *, similarity: float = 0.0
) -> Partition:
    """Share ``similarity`` (S, 0 to 1) is IID, the rest one label-sorted block per client."""
    check(pool, clients, "similarity")
    if not 0.0 <= similarity <= 1.0:
        raise DataError(
            "partition similarity", f"similarity = {similarity}", "It must be between 0 and 1"
        )
    shuffled = rng.permutation(pool.size)
    num_iid = round(similarity * pool.size)
    even = shuffled[:num_iid]
    skewed = shuffled[num_iid:]
    skewed = skewed[np.argsort(pool.labels[skewed], kind="stable")]
    each_even, each_skewed = len(even) // clients, len(skewed) // clients
    if each_even + each_skewed == 0:
        raise DataError(
            "partition similarity",
            f"{pool.size} examples leave {clients} clients empty",
            "Ask for fewer clients",
        )
    owner = np.full(pool.size, -1, np.int64)
    owner[even[: each_even * clients]] = np.repeat(np.arange(clients), each_even)
    owner[skewed[: each_skewed * clients]] = np.repeat(np.arange(clients), each_skewed)
    return from_client_ids(owner, clients=clients)
