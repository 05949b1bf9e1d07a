"""Test rows for every client: of its own rows, or of the official test set (docs/methods.md
9.5).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..types import Bools, Floats, Ints
from .partitions import Partition, Pool
from .partitions.partition import deal


def split_clients(
    whole: Partition,
    labels: Ints,
    num_classes: int,
    rng: np.random.Generator,
    *,
    test_fraction: float,
    stratified: bool,
) -> tuple[Partition, Partition]:
    """Cut every client's rows into a training and a test part.

    A client of n rows is tested on ceil(test_fraction * n) of them, but keeps one row to train on.
    """
    sizes = whole.sizes
    num_test = np.minimum(np.ceil(test_fraction * sizes - 1e-9), np.maximum(sizes - 1, 0)).astype(
        np.int64
    )
    if stratified:
        counts = whole.counts(labels, num_classes)
        share = counts * (num_test / np.maximum(sizes, 1))[:, None]
        take = np.stack(
            [largest_remainder(row, int(n), rng) for row, n in zip(share, num_test, strict=True)]
        )
        chosen = _choose(whole.owners * num_classes + labels[whole.order], take.ravel(), rng)
    else:
        chosen = _choose(whole.owners, num_test, rng)
    return _part(whole, ~chosen), _part(whole, chosen)


def match(test_labels: Ints, counts: Ints, rng: np.random.Generator) -> Partition:
    """Deal test rows of each class to clients in proportion to their training rows of it.

    ``counts`` (K, C) are the training rows.

    Rows of a class that no client trains on go to nobody.

    >>> counts = np.array([[2, 0], [1, 5]])
    >>> match(np.array([0, 0, 0, 1]), counts, np.random.default_rng(0)).sizes.tolist()
    [2, 2]
    """
    pool = Pool(test_labels, counts.shape[1])
    dealt = np.zeros_like(counts)
    for label, size in enumerate(pool.class_sizes.tolist()):
        class_counts = counts[:, label]
        if class_counts.any():
            dealt[:, label] = largest_remainder(
                class_counts * (size / class_counts.sum()), size, rng
            )
    return deal(pool, dealt, rng)


def discard(train: Partition, share: float, rng: np.random.Generator) -> Partition:
    """Throw a random share of every client's rows away.

    Of n rows floor(n * (1 - share)) stay, but at least one of them.
    """
    kept = np.maximum(
        np.floor(train.sizes * (1.0 - share) + 1e-9), np.minimum(train.sizes, 1)
    ).astype(np.int64)
    part = _part(train, _choose(train.owners, kept, rng))
    lost = len(train.order) - len(part.order)
    return replace(part, report=replace(part.report, dropped=part.report.dropped + lost))


def largest_remainder(shares: Floats, total: int, rng: np.random.Generator) -> Ints:
    """Whole numbers next to ``shares`` that sum to ``total``.

    Round down, then one more for the largest remainders.

    Equal remainders are ranked at random, so low client numbers have no advantage.

    >>> largest_remainder(np.array([1.5, 0.2, 2.3]), 4, np.random.default_rng(0)).tolist()
    [2, 0, 2]
    """
    whole = np.floor(shares + 1e-9).astype(np.int64)
    missing = total - int(whole.sum())
    rank = np.lexsort((rng.random(len(shares)), -np.round(shares - whole, 9)))
    whole[rank[:missing]] += 1
    return whole


def _choose(group: Ints, take: Ints, rng: np.random.Generator) -> Bools:
    """Mark ``take[g]`` random members of every group g; ``group`` (n,) says who is in which."""
    rank = np.lexsort((rng.random(len(group)), group))
    sizes = np.bincount(group, minlength=len(take))
    place = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen = np.zeros(len(group), np.bool_)
    chosen[rank] = place < take[group[rank]]
    return chosen


def _part(whole: Partition, chosen: Bools) -> Partition:
    """The chosen entries of a partition, client by client; the report gets the new sizes."""
    sizes = np.bincount(whole.owners[chosen], minlength=whole.clients)
    smallest, largest = int(sizes.min()), int(sizes.max())
    report = replace(
        whole.report, empty=int((sizes == 0).sum()), min_size=smallest, max_size=largest
    )
    return Partition(
        whole.order[chosen], np.concatenate([[0], np.cumsum(sizes)]), report, whole.names
    )
