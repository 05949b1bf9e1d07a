"""Label-Dirichlet without balance or minimum size: some clients may hold nothing (docs/methods.md
1.3).

The partition of clustered federated learning (Sattler, Müller, Samek 2020) and of FedLab's
``hetero`` scheme. At the same ``alpha`` it is not the same skew as :mod:`.dirichlet`. Clients
without examples are counted in the report; they have no label proportions and are never selected.
"""

from __future__ import annotations

import numpy as np

from .partition import Partition, Pool, check, deal
from .rejection import Rule, draw


def dirichlet_plain(
    pool: Pool, clients: int, rng: np.random.Generator, *, alpha: float = 0.3
) -> Partition:
    """One draw of label-Dirichlet, whatever it gives."""
    check(pool, clients, "dirichlet_plain")
    rule = Rule("partition dirichlet_plain", alpha, balance=False, min_size=0)
    counts, _, _ = draw(pool.class_sizes, clients, rng, rule)
    return deal(pool, counts, rng)
