"""Participation figures by hand, against the textbook double sums, and their limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedskew.accounting.participation import gini, jain, participation, tercile_means
from fedskew.errors import RunError


def test_four_clients_by_hand():
    found = participation([3, 1, 0, 0], [5, 2, 0, 0], 6)
    assert (found.fewest, found.most) == (0, 3)
    assert found.jain == pytest.approx(16 / (4 * 10))
    # mean 1, sixteen ordered pairs
    assert found.gini == pytest.approx((2 + 3 + 3 + 1 + 1 + 0) * 2 / (2 * 16 * 1))
    assert found.share_never == 0.5
    assert found.rounds_since.tolist() == [1, 4, 6, 6]
    assert found.longest_wait == 6
    assert found.mean_by_snr_tercile is None


def test_the_same_m_clients_for_ever():
    times = np.where(np.arange(20) < 5, 400, 0)
    found = participation(times, times, 400)
    assert found.jain == pytest.approx(0.25)
    assert found.gini == pytest.approx(0.75)
    assert found.share_never == 0.75


def test_nobody_chosen_yet_is_not_known():
    found = participation([0, 0], [0, 0], 0)
    assert np.isnan([found.jain, found.gini]).all()
    assert found.share_never == 1.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=30).filter(any))
def test_gini_is_the_mean_absolute_difference(times):
    counts = np.array(times)
    pairs = np.abs(counts[:, None] - counts[None]).mean()
    assert gini(counts) == pytest.approx(pairs / (2 * counts.mean()), abs=1e-12)
    assert 1 / len(counts) - 1e-12 <= jain(counts) <= 1 + 1e-12


def test_terciles_follow_the_channel_not_the_id():
    times, snr = np.arange(9), np.array([8.0, 7, 6, 5, 4, 3, 2, 1, 0])
    assert tercile_means(times, snr) == (7.0, 4.0, 1.0)
    worst, middle, best = tercile_means(np.array([4, 2]), np.array([1.0, 2.0]))
    assert (worst, middle) == (4.0, 2.0)
    assert np.isnan(best)


@pytest.mark.parametrize("snr", [[1.0], [1.0, np.nan]])
def test_a_missing_snr_is_refused(snr):
    with pytest.raises(RunError, match="signal-to-noise"):
        participation([1, 2], [1, 2], 2, snr=snr)


@pytest.mark.parametrize(("times", "last"), [([1, 2], [1]), ([], []), ([[1]], [[1]])])
def test_shapes_must_fit(times, last):
    with pytest.raises(RunError, match="one of each per client"):
        participation(times, last, 2)


def test_figures_cannot_be_changed():
    found = participation([1], [1], 1)
    with pytest.raises(ValueError, match="read-only"):
        found.rounds_since[0] = 3
