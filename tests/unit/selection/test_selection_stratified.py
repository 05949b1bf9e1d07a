"""A share of every cluster."""

from __future__ import annotations

import numpy as np
import pytest
from making_views import often, play, view_of

from fedskew.errors import RecipeError
from fedskew.selection.stratified import stratified

LABELS = np.array([0] * 8 + [1] * 3 + [2])


def test_numbers_per_cluster_are_rounded_and_at_least_one():
    chosen = play(stratified, view_of(labels=LABELS), fraction=0.5)
    # round(1.5) = 2, max(1, round(0.5) = 0) = 1
    assert np.bincount(LABELS[chosen]).tolist() == [4, 2, 1]
    assert np.bincount(LABELS[play(stratified, view_of(labels=LABELS), fraction=0.1)]).tolist() == [
        1,
        1,
        1,
    ]
    assert sorted(play(stratified, view_of(labels=LABELS), fraction=1.0)) == list(range(12))


def test_the_budget_of_the_run_is_not_used():
    assert len(play(stratified, view_of(labels=LABELS, m=1))) == 7


def test_the_share_is_of_all_members_not_of_those_available():
    there = np.ones(12, bool)
    there[:3] = False  # 5 of 8 are left: half of all is 4, half of those 2
    assert np.bincount(
        LABELS[play(stratified, view_of(labels=LABELS, available=there))]
    ).tolist() == [4, 2, 1]


def test_a_thinned_out_cluster_sends_whom_it_has():
    there = np.ones(12, bool)
    there[:7] = False
    assert np.bincount(
        LABELS[play(stratified, view_of(labels=LABELS, available=there))]
    ).tolist() == [1, 2, 1]


def test_clients_in_no_cluster_only_when_alone():
    assert 0 not in often(stratified, view_of(labels=[-1, 0, 0]), 20).nonzero()[0]
    assert (
        len(play(stratified, view_of(labels=[-1, -1, -1, -1, 0], available=[1, 1, 1, 1, 0]))) == 2
    )


def test_members_have_the_same_chance_inside_a_cluster_not_across():
    share = often(stratified, view_of(labels=LABELS), 2000, fraction=0.25)
    assert np.abs(share[:8] - 2 / 8).max() < 4.5 * np.sqrt(0.25 * 0.75 / 2000)
    assert np.abs(share[8:11] - 1 / 3).max() < 4.5 * np.sqrt(2 / 9 / 2000)
    assert share[11] == 1  # uniform selection of 4 out of 12 would give 1/3


@pytest.mark.parametrize("fraction", [0.0, 1.5, float("nan")])
def test_a_share_out_of_range_is_refused(fraction):
    with pytest.raises(RecipeError, match="not a share"):
        play(stratified, view_of(labels=LABELS), fraction=fraction)


def test_nobody_there():
    assert play(stratified, view_of(labels=[0, 1], available=[0, 0])) == []
