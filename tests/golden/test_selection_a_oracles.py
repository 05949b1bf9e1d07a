"""docs/methods.md section 12: FedLECC (i) to (vi), limits of Power-of-Choice, HACCS with one
cluster. All numbers are from there.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from fedskew.selection.fedlecc import fedlecc
from fedskew.selection.haccs import haccs
from fedskew.selection.power_of_choice import power_of_choice
from fedskew.types import Answer, AskLoss, Clustering, Population, View

LABELS = np.array([0, 0, 0, 1, 1, 2])
LOSSES = np.array([3.0, 2, 1, 5, 4, 0])


def view(m, *, labels=LABELS, loss=LOSSES, available=None, sizes=None, latency=None):
    K = len(labels)
    return View(
        round=2,
        budget=m,
        population=Population(np.full(K, 5) if sizes is None else sizes, latency_seconds=latency),
        available=np.ones(K, bool) if available is None else available,
        loss=loss,
        times_selected=np.zeros(K),
        last_selected=np.zeros(K),
        clustering=Clustering(labels),
    )


def lecc(m, J, **given):
    """By losses reported and by losses asked for: the same answer."""
    seen = view(m, **given)
    reported = fedlecc(seen, np.random.default_rng(0), top_clusters=J).tolist()
    ask = fedlecc(seen, np.random.default_rng(0), top_clusters=J, loss_source="exact")
    assert isinstance(ask, AskLoss)
    answered = replace(seen, answers=(Answer(ask, seen.loss[ask.clients]),))
    assert (
        fedlecc(answered, np.random.default_rng(1), top_clusters=J, loss_source="exact").tolist()
        == reported
    )
    return reported


def test_fedlecc_i_top_two_clusters_by_mean_loss():
    assert lecc(4, 2) == [3, 4, 0, 1]


def test_fedlecc_ii_an_odd_place_goes_to_the_worse_cluster():
    assert lecc(3, 2) == [3, 4, 0]


def test_fedlecc_iii_a_short_cluster_is_made_up_by_the_next_cluster():
    assert lecc(5, 2) == [3, 4, 0, 1, 5]


def test_fedlecc_iv_everyone():
    assert sorted(lecc(6, 2)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("value", [0.0, 0.1, 2.3])
def test_fedlecc_v_equal_losses_go_by_id(value):
    assert lecc(4, 2, loss=np.full(6, value)) == [0, 1, 3, 4]
    assert lecc(6, 3, loss=np.full(6, value)) == [0, 1, 3, 4, 5, 2]


def test_fedlecc_vi_means_are_over_those_available():
    assert lecc(4, 2, available=np.arange(6) != 3) == [4, 0, 1, 5]


def poc(seen, seed, d):
    ask = power_of_choice(seen, np.random.default_rng(seed), d=d)
    answered = replace(seen, answers=(Answer(ask, seen.loss[ask.clients]),))
    return power_of_choice(answered, np.random.default_rng(seed + 1), d=d).tolist()


def test_poc_with_d_equal_K_takes_the_largest_losses_of_all():
    assert {tuple(poc(view(3), seed, 6)) for seed in range(20)} == {(3, 4, 0)}


def test_poc_with_d_equal_m_is_a_draw_by_size():
    sizes, draws = np.array([1, 1, 2, 3, 5, 8]), 2000
    expected = np.zeros(6)
    for i, j in itertools.permutations(range(6), 2):  # first i, then j among the rest
        expected[[i, j]] += sizes[i] / 20 * sizes[j] / (20 - sizes[i])
    seen = np.zeros(6)
    for seed in range(draws):
        seen[poc(view(2, sizes=sizes), seed, 2)] += 1
    assert np.abs(seen / draws - expected).max() < 4.5 * np.sqrt(0.25 / draws)
    assert expected[5] > 2 * expected[2]  # nothing like uniform


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("variant", ["paper", "official"])
def test_haccs_with_one_cluster_takes_the_fastest(rho, variant):
    latency = np.array([4.0, 1, 3, 9, 2, 7])
    seen = view(4, labels=np.zeros(6, int), latency=latency)
    for seed in range(10):
        assert haccs(seen, np.random.default_rng(seed), rho=rho, variant=variant).tolist() == [
            1,
            4,
            2,
            0,
        ]
