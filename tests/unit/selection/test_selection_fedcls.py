"""FedCLS: leaders, complementary groups, passes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from making_views import often, play, view_of

from fedskew.errors import RecipeError, RunError
from fedskew.selection.fedcls import BLOCK, fedcls, follow_leaders, hamming, presence
from fedskew.types import Signal, bind


def leaders_by_scanning(held, radius):
    """The rule as docs/methods.md 4.4 words it, client by client."""
    leaders, labels = [], []
    for i, row in enumerate(held):
        near = [g for g, leader in enumerate(leaders) if (row != held[leader]).sum() <= radius]
        labels.append(near[0] if near else len(leaders))
        leaders += [] if near else [i]
    return labels, leaders


@given(hnp.arrays(np.bool_, st.tuples(st.integers(1, 20), st.integers(1, 5))), st.floats(0, 4))
def test_groups_are_those_of_a_scan_by_ascending_id(held, radius):
    labels, leaders = follow_leaders(held.astype(np.float32), np.ones(len(held), bool), radius)
    assert (labels.tolist(), leaders.tolist()) == leaders_by_scanning(held, radius)


def test_groups_beyond_one_block():
    held = np.random.default_rng(0).random((5 * BLOCK, 12)) < 0.5
    labels, leaders = follow_leaders(held.astype(np.float32), np.ones(len(held), bool), 2)
    assert (labels.tolist(), leaders.tolist()) == leaders_by_scanning(held, 2)
    assert len(leaders) > BLOCK


def test_presence_counts_examples():
    rows = np.array([[3, 4], [0, 7], [6, 1]]) / 7
    signal = Signal(rows, np.array([7, 7, 7]), "disclosed")
    assert presence(signal, 1).tolist() == [[1, 1], [0, 1], [1, 1]]
    assert presence(signal, 3).tolist() == [[1, 1], [0, 1], [1, 0]]


@given(hnp.arrays(np.bool_, (7, 9)))
def test_hamming_counts_differences(held):
    expected = (held[:, None] != held[None]).sum(axis=2)
    assert hamming(held.astype(np.float32), held.astype(np.float32)).tolist() == expected.tolist()


# three kinds of clients: {a, b}, {c, d}, {a, c}; client 6 holds nothing known
COUNTS = np.array(
    [
        [5, 5, 0, 0],
        [0, 0, 5, 5],
        [9, 1, 0, 0],
        [0, 0, 2, 8],
        [5, 0, 5, 0],
        [5, 0, 5, 0],
        [0, 0, 0, 0],
    ]
)
KIND = np.array([0, 1, 0, 1, 2, 2, 3])


def test_the_second_client_complements_the_first():
    there = np.arange(7) < 6
    for seed in range(60):
        first, second = play(fedcls, view_of(counts=COUNTS, m=2, available=there), seed)
        if KIND[first] == 2:
            assert KIND[second] in (0, 1)  # both at distance 2: a tie
        else:
            assert KIND[second] == 1 - KIND[first]  # distance 4 against 2


def test_ties_and_members_are_drawn_by_chance():
    there = np.arange(7) < 6
    share = often(fedcls, view_of(counts=COUNTS, m=1, available=there), 1500)
    assert np.abs(share[:6] - 1 / 6).max() < 4.5 * np.sqrt(5 / 36 / 1500)
    seen = {
        tuple(KIND[play(fedcls, view_of(counts=COUNTS, m=2, available=there), s)])
        for s in range(200)
    }
    assert {(2, 0), (2, 1), (0, 1), (1, 0)} == seen


def test_every_group_gives_one_before_any_gives_two():
    there = np.arange(7) < 6
    for seed in range(30):
        chosen = play(fedcls, view_of(counts=COUNTS, m=6, available=there), seed)
        assert sorted(KIND[chosen[:3]]) == sorted(KIND[chosen[3:]]) == [0, 1, 2]


def test_a_client_without_known_labels_comes_last():
    chosen = play(fedcls, view_of(counts=COUNTS, m=7))
    assert chosen[-1] == 6
    assert sorted(chosen) == list(range(7))


def test_absent_leaders_still_stand_for_their_group():
    there = np.array([0, 0, 1, 1, 0, 0, 0], bool)  # leaders 0 and 1 are away
    assert sorted(play(fedcls, view_of(counts=COUNTS, m=2, available=there))) == [2, 3]


def test_a_wide_tau_makes_one_group_and_selection_uniform():
    there = np.arange(7) < 6
    share = often(fedcls, view_of(counts=COUNTS, m=2, available=there), 1500, tau=1.0)
    assert np.abs(share[:6] - 1 / 3).max() < 4.5 * np.sqrt(2 / 9 / 1500)


def test_chosen_sets_cover_more_labels_than_uniform_ones():
    pairs = np.array(list(itertools.combinations(range(6), 2)))
    counts = np.zeros((15, 6), int)
    np.put_along_axis(counts, pairs, 5, axis=1)
    covered = [
        (counts[play(fedcls, view_of(counts=counts, m=3), s)] > 0).any(axis=0).sum()
        for s in range(100)
    ]
    rng = np.random.default_rng(0)
    by_chance = [
        (counts[rng.choice(15, 3, replace=False)] > 0).any(axis=0).sum() for _ in range(100)
    ]
    assert np.mean(covered) > np.mean(by_chance) + 0.5


def test_refusals_and_edges():
    with pytest.raises(RunError, match="no signal"):
        play(fedcls, view_of(3))
    with pytest.raises(RecipeError, match="tau"):
        play(fedcls, view_of(counts=COUNTS), tau=2.0)
    assert play(fedcls, view_of(counts=COUNTS, available=np.zeros(7, bool))) == []
    assert play(fedcls, view_of(counts=[[3, 0]], m=4)) == [0]
    assert set(bind("selection", fedcls, {}).needs()) == {"signal"}
