"""Clients laid out by group, and the largest of many values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making_views import view_of

from fedskew.errors import RunError
from fedskew.selection.groups import group, highest, labels_of


@given(st.lists(st.integers(-1, 5), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_groups_are_the_clients_of_each_label_in_the_given_order(labels, random):
    clients = np.arange(len(labels))
    random.shuffle(clients)
    labels = np.array(labels)
    grouped = group(clients, labels)
    for g in range(labels.max(initial=-1) + 1):
        assert grouped.members(g).tolist() == [c for c in clients if labels[c] == g]
    assert grouped.sizes.sum() == (labels >= 0).sum()
    counts = np.arange(len(grouped.sizes))
    expected = [c for g in counts for c in [c for c in clients if labels[c] == g][:g]]
    assert grouped.first(counts).tolist() == expected


def test_many_groups_do_not_overflow_the_fast_sort():
    labels = np.arange(70_000)[::-1].copy()
    assert group(np.arange(70_000), labels).clients.tolist() == list(range(70_000))[::-1]


def test_nobody_to_group():
    assert group(np.array([], np.int64), np.array([0, 1])).sizes.tolist() == [0, 0]
    assert group(np.array([0]), np.array([-1])).sizes.tolist() == []


@given(
    st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.5, float("inf"), float("-inf")]), max_size=25),
    st.integers(-1, 30),
)
def test_highest_is_a_stable_sort_cut_off(values, count):
    wanted = sorted(range(len(values)), key=lambda i: (-values[i], i))[: max(0, count)]
    assert highest(np.array(values), count).tolist() == wanted


def test_without_clusters_the_remedy_is_named():
    with pytest.raises(
        RunError, match=r"selection fedlecc: there is no clustering. Add \[signal\]"
    ):
        labels_of(view_of(3), "fedlecc")
