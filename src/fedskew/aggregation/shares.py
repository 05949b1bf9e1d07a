"""The most that one client may count for, whatever size it claims: in a model, and in an accuracy
that clients measured (docs/methods.md 5.3).
"""

from __future__ import annotations

import numpy as np

from fedskew.types import Ints

MANY = 5  # from so many clients on, no honest one of our studies weighs more than the usual share
USUAL_SHARE = 0.85  # 0.79 was the most that an honest one weighed
SMALL_SHARE = 0.99  # of fewer; there it was 0.981


def usual_share(clients: int) -> float:
    """The most that one of so many clients may weigh where a recipe does not say.

    >>> usual_share(4), usual_share(5)
    (0.99, 0.85)
    """
    return USUAL_SHARE if clients >= MANY else SMALL_SHARE


def bounded(sizes: Ints, share: float) -> Ints:
    """Sizes in which none is more than ``share`` of their sum: those above are cut to the largest
    size that is not.

    With k of them at c and the others at R together, c = share (k c + R).

    >>> bounded(np.array([10**12, 10, 20, 30]), 0.5)
    array([60, 10, 20, 30])
    >>> bounded(np.array([5, 7]), 0.5), bounded(np.array([5, 7]), 1.0)
    (array([5, 5]), array([5, 7]))
    """
    if share >= 1 or not len(sizes) or sizes.max() <= share * sizes.sum(dtype=np.float64):
        return sizes
    falling = np.sort(sizes)[::-1].astype(np.float64)
    limit = falling[-1]
    for k in range(1, len(falling)):
        if share * k >= 1:
            break
        limit = share * falling[k:].sum() / (1 - share * k)
        if limit >= falling[k]:
            break
    return np.minimum(sizes, max(1, int(limit * (1 + 1e-12))))
