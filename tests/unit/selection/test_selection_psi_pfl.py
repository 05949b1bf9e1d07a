"""PSI-PFL: a fixed cohort of typical clients."""

from __future__ import annotations

import numpy as np
import pytest
from making_views import often, play, view_of

from fedskew.distance.psi import psi_terms
from fedskew.errors import RecipeError, RunError
from fedskew.selection.psi_pfl import cohort, psi_of, psi_pfl
from fedskew.types import Signal

# clients 0..3 have the federation's mix, ever less so 4..7
COUNTS = np.array([[10, 10], [10, 10], [11, 9], [9, 11], [15, 5], [5, 15], [20, 0], [0, 20]])


def test_psi_is_that_of_the_distance_stage_on_known_clients():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, (30, 6)) * (rng.random((30, 6)) < 0.6)
    counts[7] = 0
    counts[3, 0] = max(1, counts[3, 0])
    sizes = counts.sum(axis=1)
    known = sizes > 0
    rows = counts / np.maximum(sizes, 1)[:, None]
    ours = psi_of(Signal(rows, sizes, "disclosed"), eps=1e-5)
    assert np.allclose(
        ours[known],
        psi_terms(rows[known], sizes[known].astype(float), eps=1e-5).sum(axis=1),
        atol=1e-14,
    )
    assert np.isinf(ours[7])


def test_the_cohort_is_half_of_the_clients_and_half_of_it_trains():
    view = view_of(counts=COUNTS)
    for seed in range(30):
        chosen = play(psi_pfl, view, seed, percentile=50)
        assert len(chosen) == 2
        assert chosen == sorted(chosen)
        assert set(chosen) <= {0, 1, 2, 3}
    share = often(psi_pfl, view, 1500, percentile=50)
    assert np.abs(share[:4] - 0.5).max() < 4.5 * np.sqrt(0.25 / 1500)
    assert share[4:].sum() == 0  # uniform selection takes each of them a quarter of the time


def test_number_from_the_budget():
    assert (
        play(
            psi_pfl, view_of(counts=COUNTS, m=3), percentile=50, number="budget", fraction=0.01
        ).__len__()
        == 3
    )
    assert play(psi_pfl, view_of(counts=COUNTS, m=30), percentile=50, number="budget") == [
        0,
        1,
        2,
        3,
    ]


def test_a_cohort_of_one_sends_one():
    assert play(psi_pfl, view_of(counts=[[10, 10], [15, 5], [5, 15]]), percentile=0) == [0]


def test_the_cohort_does_not_depend_on_who_is_there():
    view = view_of(counts=COUNTS, available=[0, 1, 1, 1, 1, 1, 1, 1])
    assert set(np.flatnonzero(often(psi_pfl, view, 60, percentile=50))) == {1, 2, 3}


def test_nobody_of_the_cohort_there_means_the_most_typical_of_the_others():
    assert play(
        psi_pfl, view_of(counts=COUNTS, available=[0, 0, 0, 0, 0, 1, 1, 1]), percentile=50
    ) == [5]
    assert play(psi_pfl, view_of(counts=COUNTS, available=np.zeros(8, bool))) == []


@pytest.mark.parametrize("percentile", [10, 25, 29, 50, 57, 100])
def test_the_client_on_the_percentile_belongs_to_the_cohort(percentile):
    values = np.arange(101.0) * 0.1 + 0.3
    assert cohort(values, percentile).sum() == percentile + 1


def test_refusals():
    with pytest.raises(RecipeError, match="out of range"):
        play(psi_pfl, view_of(counts=COUNTS), percentile=101.0)
    with pytest.raises(RunError, match="no signal"):
        play(psi_pfl, view_of(4))


def test_a_label_that_nobody_has_changes_nothing():
    rows = np.array([[0.7, 0.3], [0.1, 0.9]])
    with_spare = np.column_stack([rows, np.zeros(2)])
    sizes = np.array([10, 30])
    plain, spare = (psi_of(Signal(r, sizes, "disclosed")) for r in (rows, with_spare))
    assert spare == pytest.approx(plain)
