"""Clients tell the server exactly how many examples of each class they hold.

Papers 000, 002, 003 and 004 all assume it. Upload: 4 bytes per class, once per client
(docs/methods.md 0.5). It gives away the label mix of every client; see
:mod:`fedskew.signal.private` for a release with a guarantee.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from fedskew.signal.counts import check_counts, proportions
from fedskew.types import Signal


def histogram(counts: ArrayLike) -> Signal:
    """Exact label proportions. A client without examples is not ``known``.

    >>> signal = histogram([[3, 1], [0, 0]])
    >>> signal.rows.tolist(), signal.known.tolist()
    ([[0.75, 0.25], [0.0, 0.0]], [True, False])
    """
    table = check_counts(counts, "signal.histogram")
    return Signal(proportions(table), table.sum(axis=1), "disclosed")
