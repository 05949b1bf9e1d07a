"""Each client draws its own Dirichlet class proportions; all have the same size (docs/methods.md
1.3).

Hsu, Qi, Brown, "Measuring the effects of non-identical data distribution for federated visual
classification" (2019). Clients draw one after another without replacement; a class that has run out
is left out and the rest renormalised, so the last clients take what is left and fit their
proportions least.

Differs from the paper:

- ``prior = "uniform"`` uses Dir(alpha) instead of Dir(alpha * C * g), g = the proportions of the
  pool;
- when n is not a multiple of K the first clients get one example more, none is dropped.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ...errors import DataError
from ...types import Floats, Ints
from .partition import Partition, Pool, check, deal, equal_shares
from .rejection import MIN_ALPHA, log_gamma


def dirichlet_client(
    pool: Pool,
    clients: int,
    rng: np.random.Generator,
    *,
    alpha: float = 0.3,
    prior: Literal["global", "uniform"] = "global",
) -> Partition:
    """Dirichlet over classes per client, equal sizes."""
    check(pool, clients, "dirichlet_client")
    if not MIN_ALPHA <= alpha < np.inf or prior not in ("global", "uniform"):
        raise DataError(
            "partition dirichlet_client",
            f"alpha = {alpha}, prior = '{prior}'",
            "Use alpha > 0, 'global' or 'uniform'",
        )
    left = pool.class_sizes
    weights = (
        left * (pool.num_classes / pool.size) if prior == "global" else np.ones(pool.num_classes)
    )
    shape = np.tile(np.where(left > 0, alpha * weights, 1.0), (clients, 1))
    logs = log_gamma(shape, rng)
    counts = np.empty((clients, pool.num_classes), np.int64)
    for client, size in enumerate(equal_shares(pool.size, clients)):
        counts[client] = _take(logs[client], left, int(size), rng)
        left = left - counts[client]
    return deal(pool, counts, rng)


def _take(logs: Floats, left: Ints, size: int, rng: np.random.Generator) -> Ints:
    """Draw ``size`` examples without replacement.

    Every further turn has one exhausted class more: at most C turns.
    """
    taken = np.zeros_like(left)
    while size:
        masked = np.where(left > taken, logs, -np.inf)
        shares = np.exp(masked - masked.max())
        new = np.minimum(rng.multinomial(size, shares / shares.sum()), left - taken)
        taken = taken + new
        size -= int(new.sum())
    return taken
