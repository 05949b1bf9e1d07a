"""Label counts with the names of clients and labels, checked once and ready to be measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedskew.errors import SignalError
from fedskew.foreign import printable
from fedskew.types import Bools, Ints, frozen

LARGEST_COUNT = 2**53  # beyond this a float no longer counts in ones
NAMED = 5  # this many names are spelled out in a message


@dataclass(frozen=True, eq=False)
class Counts:
    """How many examples of each label each client has; a table without any is refused.

    Clients without examples stay in the table and out of every figure. Labels nobody has are left
    out here, once for everybody who measures (docs/methods.md 2.11): they would dilute FedArtML's
    EMD and lift AFLS's threshold above its omega. The notes say who and what.

    >>> counts = Counts([[2, 0], [0, 0]], ["a", "b"], ["x", "y"])
    >>> counts.table.tolist(), counts.labels
    ([[2], [0]], ('x',))
    >>> counts.notes
    ("1 label without examples left out: 'y'", "1 client without examples left out: 'b'")
    """

    table: Ints  # (K, C)
    clients: Sequence[str]  # (K,)
    labels: Sequence[str]  # (C,)
    source: str = "counts"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", frozen(self.table, np.int64))
        used = self.table.sum(axis=0) > 0
        if not used.any():
            raise SignalError(
                self.source, "every count is 0", "Give at least one client with examples"
            )
        if not used.all():
            self._keep(used)
        if len(self.empty):
            names = [self.clients[i] for i in self.empty[:NAMED].tolist()]
            self._note("client", names, len(self.empty))

    def _keep(self, used: Bools) -> None:
        unused = [self.labels[i] for i in np.flatnonzero(~used).tolist()]
        self._note("label", unused, len(unused))
        object.__setattr__(self, "table", frozen(self.table[:, used], np.int64))
        object.__setattr__(self, "labels", tuple(compress(self.labels, used)))

    def _note(self, noun: str, names: Sequence[str], number: int) -> None:
        note = f"{plural(number, noun)} without examples left out: {listed(names, number)}"
        object.__setattr__(self, "notes", (*self.notes, note))

    @property
    def num_clients(self) -> int:
        """K, with those that have no examples."""
        return len(self.table)

    @property
    def empty(self) -> Ints:
        """Positions of the clients without examples."""
        return np.flatnonzero(self.table.sum(axis=1) == 0)


def check_numbers(values: NDArray[Any], where: str, name_of: Callable[[int], str]) -> Ints:
    """Whole numbers of at least 0 as int64, or an error; ``name_of(i)`` names the i-th number.

    >>> check_numbers(np.array([3.0, 1.5]), "a", lambda i: f"client {i}")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedskew.errors.SignalError: a: client 1: the count is a fraction (1.5). Counts are whole ...
    """
    faults = (
        ("missing or not a finite number", ~np.isfinite(values)),
        ("negative", values < 0),
        ("a fraction", values != np.floor(values)),
        ("too large", values >= LARGEST_COUNT),
    )
    for fault, bad in faults:
        if bad.any():
            first = int(bad.argmax())
            what = f"{name_of(first)}: the count is {fault} ({values[first]})"
            raise SignalError(where, what, "Counts are whole numbers, 0 or more")
    return values.astype(np.int64)


def plural(number: int, noun: str) -> str:
    """A number and its noun.

    >>> plural(1, "client"), plural(1200, "client"), plural(2, "class")
    ('1 client', '1,200 clients', '2 classes')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}{'es' if noun.endswith('s') else 's'}"


def listed(names: Sequence[str], total: int | None = None) -> str:
    """The first names in quotes, and how many more there are.

    >>> listed(["a", "b"], 12)
    "'a', 'b' and 10 more"
    """
    shown = names[:NAMED]
    total = len(names) if total is None else total
    text = ", ".join(f"'{printable(name)}'" for name in shown)
    return f"{text} and {total - len(shown):,} more" if total > len(shown) else text
