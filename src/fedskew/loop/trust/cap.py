"""Nobody is chosen in more than a stated share of the rounds, whatever the rule says.

Of K clients that can train, m a round, everybody trains in m / K of the rounds on average. After t
rounds nobody has been chosen more than cap * t * m / K times (but once, at the beginning). m is
``run.clients_per_round``, or for rules with a number of their own the most they chose in a round.
Where too few would be left to fill the places, those used least come back first. Rules that use few
clients on purpose (``greedy_balance``; ``one_per_cluster`` with a client alone in its cluster) are
changed by it.
"""

from __future__ import annotations

import numpy as np

from fedskew.types import Bools, Ints


def under_cap(times: Ints, can_train: int, places: int, round: int, cap: float) -> Bools:
    """(K,) who may be chosen once more, in this round.

    >>> under_cap(np.array([3, 1, 0, 2]), can_train=4, places=1, round=6, cap=2.0)
    array([False,  True,  True,  True])
    """
    if not cap:
        return np.ones(len(times), np.bool_)
    most = np.floor(cap * round * places / max(1, can_train) + 1e-9)
    return np.asarray(times + 1 <= max(1.0, most), np.bool_)


def enough(wanted: Bools, available: Bools, budget: int, trust: Bools, times: Ints) -> Bools:
    """Those of ``available`` that are ``wanted``; if they are fewer than the budget, others with
    ``trust`` first, those used least first.
    """
    kept = available & wanted
    missing = min(budget, int(available.sum())) - int(kept.sum())
    if missing > 0:
        rest = np.flatnonzero(available & ~kept)
        order = np.lexsort((rest, times[rest], ~trust[rest]))
        kept = kept.copy()
        kept[rest[order[:missing]]] = True
    return kept
