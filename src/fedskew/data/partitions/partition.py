"""Who owns which example: the pool that is divided, and the partition that comes out.

A partition is two vectors (compressed sparse rows): the example numbers, client after client, and
where each client starts. Within a client they ascend, so a partition depends only on who owns what,
and reading a mapped file goes forwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import DataError
from ...types import Ints, frozen


@dataclass(frozen=True, eq=False)
class Pool:
    """The labelled examples a partition divides, and the columns that may name natural clients."""

    labels: Ints  # (n,) 0..C-1
    num_classes: int
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", frozen(self.labels, np.int64))
        if self.labels.size and not 0 <= self.labels.min() <= self.labels.max() < self.num_classes:
            raise DataError(
                "partition",
                f"labels are not all 0..{self.num_classes - 1}",
                "Number the classes from 0",
            )

    @property
    def size(self) -> int:
        """n, the number of examples."""
        return len(self.labels)

    @property
    def class_sizes(self) -> Ints:
        """(C,) examples of each class."""
        return np.bincount(self.labels, minlength=self.num_classes)


@dataclass(frozen=True)
class Report:
    """How a partition came about."""

    tries: int = 1
    dropped: int = 0  # examples that no client owns
    moved: int = 0  # examples moved by repair="move"
    empty: int = 0  # clients without an example
    min_size: int = 0
    max_size: int = 0


@dataclass(frozen=True, eq=False)
class Partition:
    """Disjoint sets of examples, one per client.

    >>> deal = from_client_ids([1, 0, 1, -1])
    >>> deal.indices(1).tolist(), deal.sizes.tolist(), deal.report.dropped
    ([0, 2], [1, 2], 1)
    """

    order: Ints  # (n - dropped,)
    offsets: Ints  # (K + 1,)
    report: Report = Report()
    names: tuple[str, ...] = ()  # what natural clients are called

    def __post_init__(self) -> None:
        for name in ("order", "offsets"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int64))
        if (
            self.offsets[0] != 0
            or self.offsets[-1] != len(self.order)
            or (np.diff(self.offsets) < 0).any()
        ):
            raise DataError("partition", "the offsets do not cut the order into clients")
        if self.order.size and (self.order.min() < 0 or np.bincount(self.order).max() > 1):
            raise DataError("partition", "an example has two owners, or a negative number")

    @property
    def clients(self) -> int:
        """K."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Ints:
        """(K,) examples of each client."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> Ints:
        """(n - dropped,) the client of each entry of ``order``."""
        return np.repeat(np.arange(self.clients), self.sizes)

    def indices(self, client: int) -> Ints:
        """Example numbers of one client, ascending; a view."""
        return self.order[self.offsets[client] : self.offsets[client + 1]]

    def counts(self, labels: Ints, num_classes: int) -> Ints:
        """(K, C) how many examples of each class each client owns."""
        cells = self.owners * num_classes + labels[self.order]
        return np.bincount(cells, minlength=self.clients * num_classes).reshape(
            self.clients, num_classes
        )


def from_client_ids(
    ids: ArrayLike, *, clients: int | None = None, tries: int = 1, moved: int = 0
) -> Partition:
    """The partition in which example i belongs to client ``ids[i]``; -1 = to nobody.

    With ``clients`` left out every client 0..max must own something.
    """
    owner = np.asarray(ids)
    if owner.ndim != 1 or owner.dtype.kind not in "iu" or (owner.size and owner.min() < -1):
        raise DataError(
            "partition",
            "client ids must be one vector of integers, -1 for nobody",
            "Number the clients from 0",
        )
    count = int(owner.max(initial=-1)) + 1 if clients is None else clients
    kept = np.flatnonzero(owner >= 0)
    sizes = np.bincount(owner[kept], minlength=count)
    if len(sizes) > count or (clients is None and not sizes.all()) or not count:
        raise DataError(
            "partition",
            "client ids leave a client without examples or exceed the number of clients",
            "Use 0..K-1",
        )
    order = kept[np.argsort(owner[kept], kind="stable")]
    report = Report(
        tries,
        len(owner) - len(kept),
        moved,
        int((sizes == 0).sum()),
        int(sizes.min()),
        int(sizes.max()),
    )
    return Partition(order, np.concatenate([[0], np.cumsum(sizes)]), report)


def deal(
    pool: Pool, counts: Ints, rng: np.random.Generator, *, tries: int = 1, moved: int = 0
) -> Partition:
    """Give each client random examples so that it holds ``counts`` (K, C) of each class.

    What is left over goes to nobody.
    """
    left_over = pool.class_sizes - counts.sum(axis=0)
    assert (left_over >= 0).all()
    shuffled = rng.permutation(pool.size)
    by_class = shuffled[np.argsort(pool.labels[shuffled], kind="stable")]
    takers = np.append(np.arange(len(counts)), -1)
    owner = np.empty(pool.size, np.int64)
    owner[by_class] = np.repeat(
        np.tile(takers, pool.num_classes), np.vstack([counts, left_over]).T.ravel()
    )
    return from_client_ids(owner, clients=len(counts), tries=tries, moved=moved)


def check(pool: Pool, clients: int, name: str) -> None:
    """Refuse what no rule can divide."""
    if clients < 1:
        raise DataError(f"partition {name}", f"{clients} clients", "Ask for at least one")
    if clients > pool.size:
        raise DataError(
            f"partition {name}",
            f"{clients} clients but only {pool.size} examples",
            "Ask for fewer clients",
        )


def equal_shares(total: int, parts: int, start: int = 0) -> Ints:
    """``total`` cut into ``parts`` that differ by one at most; the larger ones begin at ``start``.

    >>> equal_shares(7, 3).tolist(), equal_shares(7, 3, start=2).tolist()
    ([3, 2, 2], [2, 2, 3])
    """
    shares = np.full(parts, total // parts, np.int64)
    shares[(start + np.arange(total % parts)) % parts] += 1
    return shares
