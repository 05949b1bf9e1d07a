"""From a metric on label proportions to a :class:`Geometry`; no K x K matrix for many clients.

Up to ``EXACT_PAIRWISE_LIMIT`` clients a geometry holds every pair. Above it, only points whose
Euclidean distance is the metric; a metric without such points is refused by name. 5,000 clients are
200 MB of pairs, 100,000 would be 80 GB.

For a metric that is a squared Euclidean distance (cosine, mse, mmd_linear) the points reproduce its
square root: the same order of neighbours and the same k-means, but other silhouettes. Where no
pairs are given, ``name`` then says so: ``sqrt(mse)``.

Clients without a row (``known`` False) have NaN everywhere: forgetting the mask fails loudly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy

from fedskew.errors import SignalError
from fedskew.types import Bools, Floats, Geometry, Signal

EXACT_PAIRWISE_LIMIT = 5_000
# have points, so any number of clients
SCALING_METRICS = ("cosine", "euclidean", "hellinger", "mmd_linear", "mse", "psi")
SUM_TOLERANCE = 1e-9  # docs/methods.md 0.4


def known_rows(signal: Signal) -> Floats:
    """The rows of the clients that have one, checked to be distributions over the classes."""
    rows = signal.rows[signal.known]
    if not len(rows):
        raise SignalError(
            "distance",
            "no client has any examples",
            "Give at least one client with a count above zero",
        )
    bad = ~((rows >= 0).all(axis=1) & (np.abs(rows.sum(axis=1) - 1) <= SUM_TOLERANCE))
    if bad.any():
        client = int(np.flatnonzero(signal.known)[bad][0])
        raise SignalError(
            "distance",
            f"the row of client {client} is not a distribution",
            "Rows must be >= 0 and sum to 1",
        )
    return rows


def all_pairs(points: Floats, metric: str = "euclidean") -> Floats:
    """(K, K) distances between all pairs of points, by a metric of scipy's."""
    # Not imported from scipy.spatial: so it loads at its first use, and most commands and every
    # client of a fleet do without.
    apart: Floats = scipy.spatial.distance.pdist(points, metric)  # type: ignore[call-overload]
    return scipy.spatial.distance.squareform(apart)


def describe(
    signal: Signal,
    name: str,
    pairwise: Callable[[Floats], Floats],
    points: Callable[[Floats], Floats] | None = None,
    *,
    squared: bool = False,
) -> Geometry:
    """The geometry of one metric: pairs up to the limit, and points wherever the metric has them.

    ``squared`` says that the squared Euclidean distance of the points is the metric.
    """
    rows = known_rows(signal)
    known = signal.known
    exact = len(known) <= EXACT_PAIRWISE_LIMIT
    if not exact and points is None:
        raise SignalError(
            "distance",
            f"'{name}' compares every pair, "
            f"and {len(known):,} clients are above the limit of {EXACT_PAIRWISE_LIMIT:,}",
            f"Use one of: {', '.join(SCALING_METRICS)}",
        )
    return Geometry(
        pairwise=_among_all(pairwise(rows), known) if exact else None,
        points=None if points is None else _for_all(points(rows), known),
        known=known,
        name=f"sqrt({name})" if squared and not exact else name,
    )


def _for_all(values: Floats, known: Bools) -> Floats:
    """Rows of the known clients put back in their places; NaN elsewhere."""
    if known.all():
        return values
    full = np.full((len(known), values.shape[1]), np.nan)
    full[known] = values
    return full


def _among_all(square: Floats, known: Bools) -> Floats:
    """The same for a matrix of pairs."""
    if known.all():
        return square
    full = np.full((len(known), len(known)), np.nan)
    full[np.ix_(known, known)] = square
    return full
