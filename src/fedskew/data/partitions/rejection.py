"""Draw label-Dirichlet count matrices until one has no client that is too small (docs/methods.md
1.2).

Works on counts, never on example numbers, and on many attempts at once. A Dirichlet draw over K
clients is made of K independent Gamma(alpha) variables; here their logarithms are drawn, using
Gamma(alpha) = Gamma(alpha + 1) * U^(1/alpha). So a share can be as small as exp(-1/alpha) without
becoming 0, and "renormalise over the clients that are still open" is a masked softmax that always
has a largest term: a redraw on underflow is never needed, and no loop
depends on luck.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from ...errors import DataError, InfeasiblePartition
from ...types import Bools, Floats, Ints

Repair: TypeAlias = Literal["none", "move"]
# attempts drawn at once; one (64, K, C) batch of logarithms is 0.5 MB at K = 100, C = 10
MAX_BATCH = 64
MAX_CELLS = 1_000_000  # but never more numbers than this
MIN_ALPHA = 1e-9


@dataclass(frozen=True)
class Rule:
    """What one attempt is, and when it is good enough."""

    where: str
    alpha: float
    balance: bool = True  # a client that holds n / K already gets nothing more
    min_size: int = 10
    max_tries: int = 20_000
    repair: Repair = "none"
    shuffle_class_order: bool = False


@dataclass(frozen=True, eq=False)
class Batch:
    """Several independent attempts.

    They are kept class by class, as drawn: only the attempt that is used becomes a (K, C) table.
    """

    dealt: Floats  # (C, attempts, K) examples of the step-th class of each attempt's order
    orders: Ints  # (attempts, C)
    sizes: Floats  # (attempts, K)

    def counts(self, attempt: int) -> Ints:
        """(K, C) counts of one attempt."""
        table = np.empty((self.dealt.shape[2], self.dealt.shape[0]), np.int64)
        table[:, self.orders[attempt]] = self.dealt[:, attempt].T
        return table


def draw(
    class_sizes: Ints, clients: int, rng: np.random.Generator, rule: Rule
) -> tuple[Ints, int, int]:
    """An accepted (K, C) count matrix, the number of tries and the number of examples moved."""
    check_rule(rule)
    possible = clients * rule.min_size <= class_sizes.sum()
    limit = rule.max_tries if possible else 1
    best = np.zeros((clients, len(class_sizes)), np.int64)
    best_size = -1
    tries = 0
    while tries < limit:
        attempts = min(_batch(tries, clients * len(class_sizes)), limit - tries)
        batch = attempt(class_sizes, clients, attempts, rng, rule)
        smallest = batch.sizes.min(axis=1)
        good = np.flatnonzero(smallest >= rule.min_size)
        if good.size:
            return batch.counts(int(good[0])), tries + int(good[0]) + 1, 0
        if smallest.max() > best_size:
            best = batch.counts(int(smallest.argmax()))
            best_size = int(smallest.max())
        tries += attempts
    if rule.repair == "move" and possible:
        counts, moved = move(best, rule.min_size)
        return counts, tries, moved
    raise _infeasible(rule, best, tries, possible)


def attempt(
    class_sizes: Ints, clients: int, attempts: int, rng: np.random.Generator, rule: Rule
) -> Batch:
    """Independent attempts, all at once."""
    num_classes = len(class_sizes)
    full = class_sizes.sum() / clients
    logs = log_gamma(np.full((num_classes, attempts, clients), rule.alpha), rng)
    orders = np.tile(np.arange(num_classes), (attempts, 1))
    if rule.shuffle_class_order:
        orders = rng.permuted(orders, axis=1)
    dealt = np.empty_like(logs)
    sizes = np.zeros((attempts, clients))
    for step in range(num_classes):
        still_open = sizes < full if rule.balance else np.ones_like(sizes, np.bool_)
        dealt[step] = cut(logs[step], still_open, class_sizes[orders[:, step]])
        sizes += dealt[step]
    return Batch(dealt, orders, sizes)


def log_gamma(shape: Floats, rng: np.random.Generator) -> Floats:
    """Logarithms of independent Gamma(shape) draws, exact for the smallest shapes too."""
    out: Floats = np.log(rng.standard_gamma(shape + 1.0))
    out -= rng.standard_exponential(shape.shape) / shape
    return out


def cut(logs: Floats, still_open: Bools, sizes: Ints) -> Floats:
    """Cut ``sizes`` examples at floor(cumulative share * size), among the open clients only.

    >>> cut(np.log([[1.0, 1.0, 2.0]]), np.array([[True, False, True]]), np.array([10])).tolist()
    [[3.0, 0.0, 7.0]]
    """
    heights = np.where(still_open, logs, -np.inf)
    # -inf when nobody is open: then no examples are left to deal
    top = heights.max(axis=1, keepdims=True)
    heights -= np.where(np.isfinite(top), top, 0.0)
    np.exp(heights, out=heights)
    np.cumsum(heights, axis=1, out=heights)
    last = np.where(heights[:, -1:] > 0, heights[:, -1:], 1.0)
    # divide first: the top becomes exactly 1, so the last open client gets the whole rest
    heights /= last
    heights *= sizes[:, None]
    np.floor(heights, out=heights)
    heights[:, 1:] -= heights[:, :-1].copy()
    return heights


def move(counts: Ints, min_size: int) -> tuple[Ints, int]:
    """Fill every client up to ``min_size`` from the largest client's largest class.

    >>> move(np.array([[0, 1], [9, 4]]), 3)
    (array([[2, 1],
           [7, 4]]), 2)
    """
    counts = counts.copy()
    sizes = counts.sum(axis=1)
    moved = 0
    for poor in np.flatnonzero(sizes < min_size):
        while sizes[poor] < min_size:
            rich = int(sizes.argmax())
            source = int(counts[rich].argmax())
            amount = min(min_size - sizes[poor], counts[rich, source], sizes[rich] - min_size)
            counts[rich, source] -= amount
            counts[poor, source] += amount
            sizes[rich] -= amount
            sizes[poor] += amount
            moved += int(amount)
    return counts, moved


def check_rule(rule: Rule) -> None:
    """Refuse options that make no sense."""
    if not MIN_ALPHA <= rule.alpha < np.inf:
        raise DataError(
            rule.where, f"alpha = {rule.alpha}", f"It must be a number of at least {MIN_ALPHA}"
        )
    if rule.min_size < 0 or rule.max_tries < 1:
        raise DataError(
            rule.where,
            f"min_size = {rule.min_size}, max_tries = {rule.max_tries}",
            "Use 0 or more, 1 or more",
        )
    if rule.repair not in ("none", "move"):
        raise DataError(rule.where, f"repair = '{rule.repair}'", "Use 'none' or 'move'")


def _batch(tries: int, cells: int) -> int:
    """1, 1, 2, 4, ... attempts at a time: the first is usually good, a thousand should go fast."""
    return max(1, min(tries, MAX_BATCH, MAX_CELLS // cells))


def _infeasible(rule: Rule, best: Ints, tries: int, possible: bool) -> InfeasiblePartition:
    smallest = int(best.sum(axis=1).min())
    what = (
        f"no client below {rule.min_size} examples in {tries} tries with alpha = {rule.alpha}; "
        f"the best had one of {smallest}"
        if possible
        else f"{len(best)} clients of {rule.min_size} examples "
        f"need {len(best) * rule.min_size}, there are {best.sum()}"
    )
    remedy = (
        "Raise alpha, lower min_size or clients, or set repair = 'move'"
        if possible
        else "Lower min_size or clients"
    )
    return InfeasiblePartition(rule.where, what, remedy, best=best)
