"""Clients differ in how much they hold, not in what: Dirichlet sizes, random labels.

``iid-diff-quantity`` of NIID-Bench (Li, Diao, Chen, He, ICDE 2022). Redrawn until no client has
fewer than ``min_size``.
"""

from __future__ import annotations

import numpy as np

from .partition import Partition, Pool, check, deal
from .rejection import Repair, Rule, draw


def quantity(
    pool: Pool,
    clients: int,
    rng: np.random.Generator,
    *,
    alpha: float = 0.5,
    min_size: int = 10,
    max_tries: int = 20_000,
    repair: Repair = "none",
) -> Partition:
    """Dirichlet sizes, IID labels."""
    check(pool, clients, "quantity")
    rule = Rule(
        "partition quantity",
        alpha,
        balance=False,
        min_size=min_size,
        max_tries=max_tries,
        repair=repair,
    )
    one_class = Pool(np.zeros(pool.size, np.int64), 1)
    counts, tries, moved = draw(one_class.class_sizes, clients, rng, rule)
    return deal(one_class, counts, rng, tries=tries, moved=moved)
