"""Figures of how well label mixes were estimated, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.errors import SignalError
from fedskew.signal.quality import estimation_quality


def test_every_figure_by_hand() -> None:
    truth = [[0.5, 0.5, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    guess = [[0.4, 0.5, 0.1, 0.0], [0.3, 0.6, 0.0, 0.1]]
    found = estimation_quality(truth, guess, [10, 5])
    assert found.total_variation == pytest.approx((0.1 + 0.4) / 2)
    np.testing.assert_allclose(found.kappa_support, [20, (0 + 40) / 2, np.nan, np.nan])
    # Floors are 1/10 and 1/5: class 0: .1/.5 and .3/.2; class 1: 0 and .4/1; class 2: .1/.1 and 0;
    # class 3: 0 and .1/.2.
    np.testing.assert_allclose(found.kappa_floor, [(20 + 150) / 2, 20, 50, 25])
    assert found.false_mass == pytest.approx((0.1 + 0.4) / 2)
    # Called present at 0.125 or more: (0,0) (0,1) (1,0) (1,1); truly present: (0,0) (0,1) (1,1).
    assert found.presence_precision == pytest.approx(3 / 4)
    assert found.presence_recall == 1


def test_a_perfect_estimate_has_no_error() -> None:
    truth = np.array([[0.9, 0.1, 0.0], [0.0, 0.0, 1.0]])
    found = estimation_quality(truth, truth, [10, 10])
    assert found.total_variation == found.false_mass == 0
    assert found.presence_precision == 1
    # 0.1 lies below the threshold 0.5 / 3, which is the rule
    assert found.presence_recall == pytest.approx(2 / 3)
    assert not found.kappa_support.any()


def test_a_present_class_that_is_missed_lowers_recall() -> None:
    found = estimation_quality([[0.5, 0.5]], [[1.0, 0.0]], [10])
    assert (found.presence_precision, found.presence_recall) == (1, 0.5)


@pytest.mark.parametrize(
    ("truth", "guess", "sizes", "message"),
    [
        ([[1.0, 0.0]], [[1.0, 0.0, 0.0]], [1], "shapes"),
        ([[1.0, 0.0]], [[1.0, 0.0]], [1, 2], "shapes"),
        ([[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.5, 0.5]], [3, 0], "client 1 has no examples"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    truth: object, guess: object, sizes: object, message: str
) -> None:
    with pytest.raises(SignalError, match=message):
        estimation_quality(truth, guess, sizes)


def test_a_client_with_one_example_can_be_compared() -> None:
    assert estimation_quality([[1.0, 0.0]], [[0.5, 0.5]], [1]).total_variation == 0.5
