"""Which classes a client may hold: (K, C) tables of True and False with equal row sums."""

from __future__ import annotations

import numpy as np

from ...errors import DataError
from ...types import Bools, Ints
from .partition import equal_shares

MAX_SWEEPS = 200


def check_classes(per_client: int, num_classes: int, where: str) -> None:
    """Refuse a number of classes per client that cannot be."""
    if not 1 <= per_client <= num_classes:
        raise DataError(
            where, f"classes_per_client = {per_client}", f"It must be between 1 and {num_classes}"
        )


def balanced(clients: int, num_classes: int, per_client: int, rng: np.random.Generator) -> Bools:
    """Every client owns ``per_client`` classes; the numbers of owners differ by one at most.

    Drawn as docs/methods.md 1.5 says: permute a multiset of class ids, deal, swap away duplicates.
    Above C / 2 the classes a client does NOT own are drawn instead, because a random swap then
    almost never fits (1 in 100 for 9 of 10 classes).

    >>> table = balanced(10, 10, 2, np.random.default_rng(0))
    >>> set(table.sum(axis=0).tolist()), set(table.sum(axis=1).tolist())
    ({2}, {2})
    """
    if 2 * per_client > num_classes:
        return (
            ~balanced(clients, num_classes, num_classes - per_client, rng)
            if per_client < num_classes
            else _all(clients, num_classes)
        )
    quota = rng.permutation(equal_shares(clients * per_client, num_classes))
    hands = rng.permutation(np.repeat(np.arange(num_classes), quota)).reshape(clients, per_client)
    if not _separate(hands, num_classes, rng):
        hands = _greedy(quota, clients, per_client, rng)
    return _table(hands, num_classes)


def scattered(
    clients: int, num_classes: int, per_client: int, rng: np.random.Generator, *, anchored: bool
) -> Bools:
    """Every client owns ``per_client`` random classes; ``anchored``: i owns class i mod C."""
    keys = rng.random((clients, num_classes))
    if anchored:
        keys[np.arange(clients), np.arange(clients) % num_classes] = -1.0
    return _table(np.argsort(keys, axis=1)[:, :per_client], num_classes)


def _all(clients: int, num_classes: int) -> Bools:
    return np.ones((clients, num_classes), np.bool_)


def _table(hands: Ints, num_classes: int) -> Bools:
    table = np.zeros((len(hands), num_classes), np.bool_)
    np.put_along_axis(table, hands, True, axis=1)
    return table


def _separate(hands: Ints, num_classes: int, rng: np.random.Generator) -> bool:
    """Swap cards between hands, in place, until no hand holds a class twice.

    False: not within the sweeps allowed.
    """
    clients, width = hands.shape
    num_held = np.zeros((clients, num_classes), np.int64)
    np.add.at(num_held, (np.repeat(np.arange(clients), width), hands.ravel()), 1)
    for _ in range(MAX_SWEEPS):
        doubled = np.argwhere(np.take_along_axis(num_held, hands, axis=1) > 1)
        if not len(doubled):
            return True
        partners = np.stack(
            [rng.integers(clients, size=len(doubled)), rng.integers(width, size=len(doubled))],
            axis=1,
        )
        for (i, a), (j, b) in zip(doubled.tolist(), partners.tolist(), strict=True):
            mine, other = hands[i, a], hands[j, b]
            if num_held[i, mine] > 1 and not num_held[i, other] and not num_held[j, mine]:
                hands[i, a], hands[j, b] = other, mine
                num_held[i, mine] -= 1
                num_held[j, mine] += 1
                num_held[j, other] -= 1
                num_held[i, other] += 1
    return False


def _greedy(quota: Ints, clients: int, per_client: int, rng: np.random.Generator) -> Ints:
    """Each client takes the classes with the most owners still to find.

    It always ends, for quotas that differ by one at most.
    """
    left = quota.copy()
    hands = np.empty((clients, per_client), np.int64)
    for client in rng.permutation(clients):
        hands[client] = np.lexsort((rng.random(len(left)), -left))[:per_client]
        left[hands[client]] -= 1
    return hands
