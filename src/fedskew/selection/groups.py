"""Clients sorted into groups: what the rules that live on clusters share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedskew.errors import RunError
from fedskew.types import Floats, Ints, View


@dataclass(frozen=True)
class Groups:
    """Clients laid out group by group; inside a group they keep their order."""

    clients: Ints  # (n,) group 0 first, then group 1 ...
    starts: Ints  # (k + 1,) where each group begins, and the end

    @property
    def sizes(self) -> Ints:
        """(k,) how many clients each group has; 0 is possible."""
        return np.diff(self.starts)

    def members(self, group: int) -> Ints:
        """The clients of one group in the given order."""
        return self.clients[self.starts[group] : self.starts[group + 1]]

    @property
    def places(self) -> Ints:
        """(n,) 0 for the first client of each group, 1 for the second ..."""
        return np.arange(len(self.clients)) - np.repeat(self.starts[:-1], self.sizes)

    def first(self, counts: Ints) -> Ints:
        """The first ``counts[g]`` clients of every group g (or all it has), group by group."""
        return self.clients[self.places < np.repeat(counts, self.sizes)]


def group(clients: Ints, labels: Ints) -> Groups:
    """Lay ``clients`` out by their label ``labels[client]``; those with label -1 are left out.

    >>> grouped = group(np.array([5, 3, 0, 2]), np.array([1, 0, 1, 0, 0, -1]))
    >>> grouped.clients, grouped.sizes, grouped.first(np.array([1, 2]))
    (array([3, 0, 2]), array([1, 2]), array([3, 0, 2]))
    """
    inside = clients[labels[clients] >= 0]
    cluster_of = labels[inside]
    # numpy sorts 16-bit integers by radix: 10 ms for 10^6 clients against 49 ms for 64-bit ones
    small = cluster_of.astype(np.int16) if cluster_of.max(initial=0) < 1 << 15 else cluster_of
    starts = np.concatenate(
        [[0], np.cumsum(np.bincount(cluster_of, minlength=labels.max(initial=-1) + 1))]
    )
    return Groups(inside[np.argsort(small, kind="stable")], starts.astype(np.int64))


def labels_of(view: View, rule: str) -> Ints:
    """(K,) cluster labels, -1 = in none."""
    if view.clustering is None:
        raise RunError(
            f"selection {rule}",
            "there is no clustering",
            "Add [signal], [distance] and [clustering]",
        )
    return view.clustering.labels


def highest(values: Floats, count: int) -> Ints:
    """Positions of the ``count`` largest values, largest first, ties to the lower position. No
    value may be nan.

    >>> highest(np.array([1.0, 3.0, 2.0, 3.0, 2.0]), 3)
    array([1, 3, 2])
    """
    if count <= 0:
        return np.empty(0, np.int64)
    kept = np.arange(len(values))
    # a partition first: 3 ms for 10^6 values against 230 ms for a stable sort
    if count < len(values):
        bar = np.partition(values, len(values) - count)[len(values) - count]
        above, level = np.flatnonzero(values > bar), np.flatnonzero(values == bar)
        kept = np.sort(np.concatenate([above, level[: count - len(above)]]))
    return kept[np.argsort(-values[kept], kind="stable")]
