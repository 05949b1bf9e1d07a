"""When an accuracy was reached, when a curve stopped rising, and what that saved.

docs/methods.md 9.6, after paper 002: a target is reached at the first of three CONSECUTIVE
evaluations at or above it. docs/methods.md 6.6: the plateau is the first evaluation that the best
of the next ten exceeds by less than half a point. A target that was not reached has no number: it
is censored, None.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

CONSECUTIVE = 3
PLATEAU_WINDOW, PLATEAU_MARGIN = 10, 0.005


def first_held(accuracies: ArrayLike, target: float, consecutive: int = CONSECUTIVE) -> int | None:
    """Position of the first of so many evaluations in a row that all reach the target; None: never.

    >>> first_held([0.5, 0.9, 0.8, 0.9, 0.95, 0.9], 0.9), first_held([0.9, 0.9], 0.9)
    (3, None)
    """
    good = np.asarray(accuracies) >= target
    return next(
        (i for i in range(len(good) - consecutive + 1) if good[i : i + consecutive].all()), None
    )


def first_plateau(accuracies: ArrayLike) -> int | None:
    """Position of the first evaluation that the best of the next ten exceeds by less than half a
    point; None: there is none.

    Differs from a looser reading: the whole window must have been seen, so the last ten evaluations
    are never a plateau.

    >>> first_plateau([min(t, 4) / 10 for t in range(20)])
    4
    """
    curve = np.asarray(accuracies, np.float64)
    for i in range(len(curve) - PLATEAU_WINDOW):
        if curve[i + 1 : i + 1 + PLATEAU_WINDOW].max() - curve[i] < PLATEAU_MARGIN:
            return i
    return None


@dataclass(frozen=True)
class Reduction:
    """How much less than a baseline: 1 - R / R_base; a bound, with censored runs on one side."""

    value: float | None  # None: censored on both sides, nothing can be said
    bound: Literal["", "at least", "at most"] = ""

    @property
    def text(self) -> str:
        """As a table prints it.

        >>> Reduction(0.25).text, Reduction(0.5, "at least").text, Reduction(None).text
        ('25.0 %', 'at least 50.0 %', 'not known')
        """
        return (
            "not known" if self.value is None else f"{self.bound} {100 * self.value:.1f} %".strip()
        )


def saving(ours: tuple[float, int], baseline: tuple[float, int]) -> Reduction:
    """What was saved against a baseline.

    Of each: what was spent, and in how many seeds the target was never reached.

    >>> saving((30.0, 0), (60.0, 0)).text, saving((30.0, 0), (60.0, 1)).text
    ('50.0 %', 'at least 50.0 %')
    >>> saving((60.0, 2), (60.0, 1)).text
    'not known'
    """
    (spent, never), (base, base_never) = ours, baseline
    if (never and base_never) or not base > 0 or math.isnan(spent):
        return Reduction(None)
    return Reduction(1 - spent / base, "at least" if base_never else "at most" if never else "")
