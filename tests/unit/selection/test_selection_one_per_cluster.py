"""One client of every cluster, the same at a given budget, and the control with random groups."""

from __future__ import annotations

import numpy as np
from making_views import often, play, view_of

from fedskew.selection.one_per_cluster import OnePerCluster
from fedskew.types import Clustering, bind

LABELS = np.array([0, 1, 0, 2, 1, 0])


def test_one_of_each_cluster_whatever_the_budget():
    for seed in range(20):
        chosen = play(OnePerCluster, view_of(labels=LABELS, m=1), seed)
        assert LABELS[chosen].tolist() == [0, 1, 2]


def test_members_of_a_cluster_have_the_same_chance():
    share = often(OnePerCluster, view_of(labels=LABELS), 3000)
    # uniform selection of 3 out of 6: 1/2 each
    expected = np.array([1 / 3, 1 / 2, 1 / 3, 1, 1 / 2, 1 / 3])
    assert np.abs(share - expected).max() < 4.5 * np.sqrt(0.25 / 3000)


def test_a_cluster_without_anyone_there_is_skipped():
    chosen = play(OnePerCluster, view_of(labels=LABELS, available=LABELS != 1))
    assert LABELS[chosen].tolist() == [0, 2]


def test_budget_below_the_number_of_clusters_takes_distinct_ones():
    for seed in range(20):
        chosen = play(OnePerCluster, view_of(labels=LABELS, m=2), seed, number="budget")
        assert len(set(LABELS[chosen])) == 2
    share = often(OnePerCluster, view_of(labels=[0, 0, 1], m=1), 2000, number="budget")
    assert np.abs(share - [0.25, 0.25, 0.5]).max() < 0.05  # clusters alike, then members alike


def test_budget_above_it_goes_on_with_a_second_pass():
    for seed in range(20):
        chosen = play(OnePerCluster, view_of(labels=LABELS, m=5), seed, number="budget")
        assert sorted(LABELS[chosen[:3]]) == [0, 1, 2]
        assert sorted(LABELS[chosen[3:]]) == [0, 1]
    assert sorted(play(OnePerCluster, view_of(labels=LABELS, m=50), number="budget")) == list(
        range(6)
    )


def test_clients_in_no_cluster_fill_empty_places_only():
    labels = np.array([-1, 0, 0, -1])
    assert often(OnePerCluster, view_of(labels=labels), 30)[[0, 3]].sum() == 0
    assert play(OnePerCluster, view_of(labels=labels, m=3), number="budget")[:2] in (
        [1, 2],
        [2, 1],
    )
    assert len(play(OnePerCluster, view_of(labels=labels, available=[1, 0, 0, 1]))) == 1


def test_random_groups_are_dealt_once_and_keep_their_sizes():
    view, memory, groups = view_of(labels=LABELS), {}, []
    for t in range(30):
        chosen, memory = OnePerCluster(groups="random").choose(
            memory, view, np.random.default_rng(t)
        )
        groups.append(memory["labels"].tolist())
        assert sorted(memory["labels"][chosen]) == [0, 1, 2]
    assert all(labels == groups[0] for labels in groups)
    assert np.bincount(groups[0]).tolist() == [3, 2, 1]
    assert groups[0] != LABELS.tolist()


def test_memory_given_is_left_alone_and_clusters_need_none():
    view, memory = view_of(labels=LABELS), {}
    _, after = OnePerCluster(groups="random").choose(memory, view, np.random.default_rng(0))
    assert memory == {}
    assert after.keys() == {"labels"}
    assert OnePerCluster().choose({}, view, np.random.default_rng(0))[1] == {}


def test_more_kinds_of_clients_take_part_than_under_uniform_selection():
    labels = np.repeat(np.arange(10), [91] + [1] * 9)
    chosen = play(OnePerCluster, view_of(labels=labels))
    # 10 uniform clients out of these 100 meet 1.8 clusters on average
    assert len(set(labels[chosen])) == 10


def test_edges():
    assert play(OnePerCluster, view_of(labels=[0])) == [0]
    assert play(OnePerCluster, view_of(labels=[0, 1], available=[0, 0])) == []
    assert play(OnePerCluster, view_of(labels=[0, 1], available=[0, 0]), number="budget") == []
    assert sorted(play(OnePerCluster, view_of(labels=np.arange(5)))) == list(range(5))
    assert set(bind("selection", OnePerCluster, {}).needs()) == {"clustering"}
    assert Clustering(LABELS).k == 3
