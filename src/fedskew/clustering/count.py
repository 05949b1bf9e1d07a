"""How many clusters? Try several numbers and keep the one with the best mean silhouette, the
smallest among equals.

Paper 002 and paper 004 try every number from 2 to K - 1. That is K - 2 fits, fine to about 300
clients; above, docs/methods.md 3.4 tries the grid 2, 3, 4, 5, 6, 8, 10, 12, 16, ... and then the
neighbours (+-2) of the best one. Above 5,000 clients the numbers are tried on cells of near-equal
clients (:mod:`fedskew.clustering.summary`), the best few then on everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedskew.clustering.space import PAIRWISE_LIMIT
from fedskew.errors import RecipeError
from fedskew.types import Floats, Ints

Scan = Literal["auto", "full", "geometric"]
FULL_SCAN_LIMIT = 300  # clients; docs/methods.md 3.4
GRID_CEILING = 200  # clusters; docs/methods.md 3.4
EXACT_LIMIT = 50_000  # clients; to here the best counts are tried on everybody, docs/methods.md 3.6
FINALISTS, MARGIN = 5, 0.01  # counts scored on everybody: at most this many, this near the best
TIE = 1e-9  # silhouettes this close are one plateau, docs/methods.md 3.5


@dataclass(frozen=True)
class Curve:
    """The silhouette of every number of clusters that was tried; NaN where it is not defined."""

    counts: Ints
    silhouettes: Floats

    @property
    def best(self) -> int | None:
        """The smallest count within 1e-9 of the maximum; None if no silhouette is defined.

        >>> Curve(np.array([2, 3, 4]), np.array([0.5, 0.7, 0.7 + 1e-12])).best
        3
        """
        if np.isnan(self.silhouettes).all():
            return None
        top = np.nanmax(self.silhouettes)
        return int(self.counts[self.silhouettes >= top - TIE].min())

    @property
    def top(self) -> float:
        """The highest silhouette, NaN if none is defined."""
        return float(np.fmax.reduce(self.silhouettes, initial=np.nan))

    @property
    def finalists(self) -> list[int]:
        """The counts worth a closer look: the five best of those within 0.01 of the maximum.

        >>> Curve(np.array([2, 3, 4]), np.array([0.5, 0.3, 0.495])).finalists
        [2, 4]
        """
        order = np.argsort(-self.silhouettes, kind="stable")[:FINALISTS]
        near = self.silhouettes[order] >= self.top - MARGIN
        return sorted(self.counts[order[near]].tolist())

    def as_details(self) -> dict[str, Any]:
        """What a clustering's details keep."""
        return {"counts": self.counts, "silhouettes": self.silhouettes}


def grid_counts(limit: int) -> list[int]:
    """2, 3 and {4, 5, 6} x 2^i up to a limit.

    >>> grid_counts(20)
    [2, 3, 4, 5, 6, 8, 10, 12, 16, 20]
    """
    grid = [2, 3] + [step << i for i in range(limit.bit_length()) for step in (4, 5, 6)]
    return sorted({count for count in grid if count <= limit})


def counts_to_try(
    size: int, scan: Scan, max_count: int, num_features: int | None
) -> tuple[list[int], bool]:
    """(numbers of clusters to try for ``size`` clients, whether to look at the neighbours of the
    best afterwards).

    ``max_count`` 0: K - 1 for a full scan, min(K - 1, 4 F, 200) for the grid, F = columns of the
    points, not by classes.

    >>> counts_to_try(5, "auto", 0, None), counts_to_try(400, "auto", 0, 3)
    (([2, 3, 4], False), ([2, 3, 4, 5, 6, 8, 10, 12], True))
    """
    if scan == "full" or (scan != "geometric" and size <= FULL_SCAN_LIMIT):
        return list(range(2, min(size - 1, max_count or size) + 1)), False
    ceiling = max_count or min(GRID_CEILING, 4 * num_features if num_features else GRID_CEILING)
    return grid_counts(min(size - 1, ceiling)), True


def scan_counts(
    score: Callable[[int], float | None], counts: Iterable[int], *, refine: bool, limit: int
) -> Curve:
    """Score each count; with ``refine`` also those within 2 of the best one.

    >>> scan_counts(lambda c: -abs(c - 7.0), [2, 4, 8], refine=True, limit=9).best
    7
    """
    scores = {count: score(count) for count in counts}
    best = _curve(scores).best
    if refine and best is not None:
        near = range(max(2, best - 2), min(limit, best + 2) + 1)
        scores |= {count: score(count) for count in near if count not in scores}
    return _curve(scores)


def first_best(scores: Sequence[float | None]) -> int:
    """The position of the first score within 1e-9 of the highest; None counts as the lowest.

    >>> first_best([None, 0.7, 0.7 + 1e-12])
    1
    """
    values = np.array([-np.inf if score is None else score for score in scores])
    return int((values >= values.max() - TIE).argmax())


def check_options(
    where: str,
    size: int,
    *,
    count: int,
    scan: str,
    max_count: int,
    summary_size: int,
    exact_limit: int,
) -> None:
    """Refuse options that cannot work for this number of clients."""
    if max_count < 0 or max_count == 1:
        raise RecipeError(where, f"max_count {max_count}", "Choose 2 or more, or 0 for the default")
    if not 0 <= count <= size:
        raise RecipeError(
            where, f"count {count} for {size} known clients", f"Choose 1 to {size}, or 0 to find it"
        )
    check_sizes(where, summary_size=summary_size, exact_limit=exact_limit)
    if scan == "full" and size > min(exact_limit, PAIRWISE_LIMIT):
        raise RecipeError(where, f"scan 'full' over {size} clients", "Use scan 'auto'")


def check_sizes(where: str, *, summary_size: int, exact_limit: int) -> None:
    """Refuse a number of cells whose distance matrix would be too large."""
    if not 3 <= summary_size <= PAIRWISE_LIMIT:
        raise RecipeError(where, f"summary_size {summary_size}", f"Choose 3 to {PAIRWISE_LIMIT}")
    if exact_limit < 0:
        raise RecipeError(where, f"exact_limit {exact_limit}", "Choose 0 or more")


def _curve(scores: dict[int, float | None]) -> Curve:
    counts = sorted(scores)
    values = [scores[count] for count in counts]
    return Curve(
        np.array(counts, np.int64),
        np.array([np.nan if v is None else v for v in values], np.float64),
    )
