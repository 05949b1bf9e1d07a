from __future__ import annotations

import numpy as np
import pytest

from fedskew.clustering.count import (
    EXACT_LIMIT,
    FULL_SCAN_LIMIT,
    GRID_CEILING,
    Curve,
    check_sizes,
    counts_to_try,
    grid_counts,
    scan_counts,
)
from fedskew.errors import RecipeError


def test_ties_within_a_billionth_go_to_the_smallest() -> None:
    assert Curve(np.array([2, 3, 4]), np.array([0.5, 0.9, 0.9 + 5e-10])).best == 3
    assert Curve(np.array([2, 3, 4]), np.array([0.5, 0.9, 0.9 + 5e-9])).best == 4
    assert Curve(np.array([2, 3]), np.array([np.nan, -0.2])).best == 3
    assert Curve(np.array([2]), np.array([np.nan])).best is None
    assert np.isnan(Curve(np.array([2]), np.array([np.nan])).top)


def test_grid_is_that_of_methods() -> None:
    assert grid_counts(200) == [
        2,
        3,
        4,
        5,
        6,
        8,
        10,
        12,
        16,
        20,
        24,
        32,
        40,
        48,
        64,
        80,
        96,
        128,
        160,
        192,
    ]
    assert grid_counts(1) == []


@pytest.mark.parametrize(
    ("size", "scan", "max_count", "features", "last", "refine"),
    [
        (300, "auto", 0, 10, 299, False),
        (301, "auto", 0, 10, 40, True),  # 4 C
        (301, "auto", 0, None, 192, True),
        (30, "geometric", 0, None, 24, True),
        (400, "full", 0, 10, 399, False),
        (100, "auto", 7, None, 7, False),
    ],
)
def test_what_is_tried(
    size: int, scan: str, max_count: int, features: int | None, last: int, refine: bool
) -> None:
    counts, again = counts_to_try(size, scan, max_count, features)  # type: ignore[arg-type]
    assert (counts[0], counts[-1], again) == (2, last, refine)


def test_refining_finds_a_peak_between_grid_points_and_respects_the_limit() -> None:
    tried = []

    def score(count: int) -> float:
        tried.append(count)
        return -abs(count - 14.0)

    assert scan_counts(score, [8, 12, 16], refine=True, limit=100).best == 14
    assert len(tried) == len(set(tried))
    assert scan_counts(score, [8, 12], refine=True, limit=13).best == 13
    assert scan_counts(lambda c: None, [2, 3], refine=True, limit=9).best is None


def test_at_most_five_counts_get_a_closer_look() -> None:
    near = Curve(np.arange(2, 10), 0.5 + 1e-4 * np.arange(8))
    assert near.finalists == [5, 6, 7, 8, 9]


def test_the_grid_ends_below_the_number_of_clients() -> None:
    assert counts_to_try(401, "geometric", 400, None)[0][-1] == 384
    assert counts_to_try(385, "geometric", 400, None)[0][-1] == 384
    assert counts_to_try(384, "geometric", 400, None)[0][-1] == 320


def test_limits_are_those_of_methods() -> None:
    assert (FULL_SCAN_LIMIT, GRID_CEILING, EXACT_LIMIT) == (300, 200, 50_000)


@pytest.mark.parametrize(("best", "more"), [(10, [8, 9, 11, 12]), (4, [2, 3, 5, 6]), (2, [3, 4])])
def test_refining_looks_two_to_either_side(best: int, more: list[int]) -> None:
    tried: list[int] = []

    def score(count: int) -> float:
        tried.append(count)
        return float(count == best)

    scan_counts(score, [best, 30], refine=True, limit=50)
    assert tried == [best, 30, *more]


def test_three_cells_are_the_fewest() -> None:
    check_sizes("x", summary_size=3, exact_limit=0)
    with pytest.raises(RecipeError, match="summary_size 2"):
        check_sizes("x", summary_size=2, exact_limit=0)
