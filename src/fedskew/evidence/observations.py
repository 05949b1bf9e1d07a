"""Results as one long table: labels, a seed and numbers in every row; and what stands in one field
of a page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedskew.compare.estimates import Estimate, mean_interval
from fedskew.evidence.cells import Labels
from fedskew.evidence.results import Results
from fedskew.evidence.rows import Row

Where = Mapping[str, Any]  # axis -> the label, or a list of labels


@dataclass(frozen=True)
class Observation:
    """One row of one cell."""

    labels: Labels  # the seed is one of them
    seed: int
    row: Row
    beside: bool = False  # a reference: what could be had without the method of its cell

    def number(self, figure: str) -> float:
        """One of its figures; nan where it has none."""
        value = self.row.get(figure)
        return math.nan if value is None else float(value)


def observations(results: Results) -> list[Observation]:
    """Every row of every cell, in the order of the study; references come last."""
    found = [
        Observation(
            labels={"seed": str(cell.seed), **cell.labels, **row.get("of", {})},
            seed=cell.seed,
            row=row,
            beside=any(axis in cell.labels for axis in row.get("of", {})),
        )
        for cell in results.cells
        for row in cell.rows
    ]
    return sorted(found, key=lambda row: row.beside)


def select(rows: Sequence[Observation], where: Where) -> list[Observation]:
    """Those with these labels.

    >>> some = [Observation({"k": "2"}, 0, {}), Observation({"k": "5"}, 0, {})]
    >>> len(select(some, {"k": "2"})), len(select(some, {"k": ["2", "5"]})), len(select(some, {}))
    (1, 2, 2)
    """
    return [row for row in rows if all(_fits(row, axis, want) for axis, want in where.items())]


def _fits(row: Observation, axis: str, want: Any) -> bool:
    wanted = want if isinstance(want, list | tuple) else [want]
    return row.labels.get(axis) in [str(label) for label in wanted]


def by_seed(rows: Sequence[Observation], figure: str) -> dict[int, float]:
    """Seed -> figure."""
    return {row.seed: row.number(figure) for row in rows}


def values_of(rows: Sequence[Observation], axis: str) -> list[str]:
    """Labels of an axis in the order in which they come."""
    return list(dict.fromkeys(row.labels[axis] for row in rows if axis in row.labels))


def estimate(
    rows: Sequence[Observation],
    figure: str,
    *,
    against: Sequence[Observation] | None = None,
    factor: float = 1.0,
) -> Estimate:
    """Mean over seeds with its 95 % t interval: the one meaning of ± on every page.

    ``against``: of the differences from these, seed by seed.
    """
    ours = by_seed(rows, figure)
    censored = int(sum(row.number("missed") for row in rows if figure.endswith("_to")))
    if against is None:
        return mean_interval([value * factor for value in ours.values()], censored=censored)
    theirs = by_seed(against, figure)
    both = [seed for seed in ours if seed in theirs]
    return mean_interval([(ours[seed] - theirs[seed]) * factor for seed in both])
