"""Label skew as usual: each class is dealt in Dirichlet shares (docs/methods.md 1.2).

Li, Diao, Chen, He, "Federated learning on non-IID data silos" (ICDE 2022), ``noniid-labeldir`` of
NIID-Bench; the same rule is ``dirichlet`` of FedArtML. A client that already holds n / K examples
gets nothing of the later classes, and the whole draw is repeated until no client has fewer than
``min_size``. Smaller ``alpha`` = stronger skew.

Differs from the reference codes:

- shares are drawn from one stream in log space (see :mod:`.rejection`), not from a reseeded global
  generator;
- tries are limited; when they run out ``InfeasiblePartition`` carries the best attempt, or ``repair
  = "move"`` fills it up;
- the last client gets nothing from a rounding error when it is closed;
- ``shuffle_class_order`` removes the effect that late classes only reach clients still below n / K
  (off, as in the papers).
"""

from __future__ import annotations

import numpy as np

from .partition import Partition, Pool, check, deal
from .rejection import Repair, Rule, draw


def dirichlet(
    pool: Pool,
    clients: int,
    rng: np.random.Generator,
    *,
    alpha: float = 0.3,
    min_size: int = 10,
    max_tries: int = 20_000,
    repair: Repair = "none",
    shuffle_class_order: bool = False,
) -> Partition:
    """Label-Dirichlet over clients, class by class, with the balance rule and a minimum size."""
    check(pool, clients, "dirichlet")
    rule = Rule(
        "partition dirichlet", alpha, True, min_size, max_tries, repair, shuffle_class_order
    )
    counts, tries, moved = draw(pool.class_sizes, clients, rng, rule)
    return deal(pool, counts, rng, tries=tries, moved=moved)
