"""Draw a smaller set of clients that still shows every kind of client: proportional, with a
floor for rare kinds.
"""

from __future__ import annotations

import numpy as np

from fedskew.clustering.space import Space
from fedskew.types import Ints


def quotas(sizes: Ints, total: int, floor: int = 2) -> Ints:
    """How many to draw from each stratum: at least ``floor`` (or all it has), the rest in
    proportion, at most ``total``.

    When even the floors exceed ``total`` there is no floor.

    >>> quotas(np.array([1, 10, 89]), 20)
    array([ 1,  3, 15])
    """
    reserved = np.minimum(sizes, floor)
    if reserved.sum() > total:
        reserved = np.zeros_like(sizes)
    rest = sizes - reserved
    spread = (total - reserved.sum()) * rest // max(int(rest.sum()), 1)
    return np.asarray(np.minimum(sizes, reserved + spread))


def stratified_rows(strata: Ints, total: int, rng: np.random.Generator, floor: int = 2) -> Ints:
    """At most ``total`` row numbers, ascending, drawn stratum by stratum without replacement.

    >>> stratified_rows(np.array([0, 0, 0, 1]), 3, np.random.default_rng(0))
    array([1, 2, 3])
    """
    if len(strata) <= total:
        return np.arange(len(strata))
    _, own, sizes = np.unique(strata, return_inverse=True, return_counts=True)
    order = np.lexsort((rng.random(len(strata)), own))
    rank = np.arange(len(strata)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(order[rank < quotas(sizes, total, floor)[own[order]]])


def sample_rows(space: Space, total: int, rng: np.random.Generator) -> Ints:
    """At most ``total`` rows of a space. Strata: the column with the largest value, so a rare
    main class is not missed.
    """
    strata = np.zeros(space.size, np.int64) if space.points is None else space.points.argmax(axis=1)
    return stratified_rows(strata, total, rng)
