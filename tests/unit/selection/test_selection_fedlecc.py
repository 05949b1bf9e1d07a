"""FedLECC: Algorithm 1 against its own words, where losses come from, and life without them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making_views import NAN, often, play, view_of

from fedskew.errors import RecipeError, RunError
from fedskew.selection.fedlecc import fedlecc
from fedskew.types import AskLoss, bind


def literal(labels, loss, available, m, J, overflow):
    """docs/methods.md 4.6, line by line, on lists."""
    clusters = {
        c: [i for i in range(len(labels)) if labels[i] == c and available[i]]
        for c in sorted(set(labels) - {-1})
    }
    clusters = {c: sorted(ids, key=lambda i: (-loss[i], i)) for c, ids in clusters.items() if ids}
    total = sum(len(ids) for ids in clusters.values())
    m, J = min(m, total), min(J, len(clusters))
    if m == 0:
        return []
    ranked = sorted(
        clusters,
        key=lambda c: (-round(sum(loss[i] for i in clusters[c]) / len(clusters[c]), 12), c),
    )
    quota = (
        [m // J + (j < m % J) for j in range(J)]
        if overflow == "balanced"
        else [math.ceil(m / J)] * J
    )
    chosen = []
    for c, z in zip(ranked, quota, strict=False):
        chosen += clusters[c][:z]
    chosen = chosen[:m]
    for c in ranked[J:]:
        chosen += clusters[c]
    for c, z in zip(ranked, quota, strict=False):
        chosen += clusters[c][z:]
    return chosen[:m]


@given(st.data())
def test_algorithm_1_equals_its_words(data):
    K = data.draw(st.integers(1, 14))
    labels = data.draw(st.lists(st.integers(0, 4), min_size=K, max_size=K))
    loss = data.draw(
        st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.7, 1.3, 2.9]), min_size=K, max_size=K)
    )
    available = data.draw(st.lists(st.booleans(), min_size=K, max_size=K))
    m, J = data.draw(st.integers(1, 16)), data.draw(st.integers(1, 7))
    overflow = data.draw(st.sampled_from(["balanced", "truncate"]))
    view = view_of(m=m, labels=labels, loss=loss, available=available)
    expected = literal(labels, loss, available, m, J, overflow)
    assert play(fedlecc, view, top_clusters=J, overflow=overflow) == expected
    exact = {"loss_source": "exact", "fresh": loss}
    assert (
        play(
            fedlecc,
            view_of(m=m, labels=labels, available=available),
            top_clusters=J,
            overflow=overflow,
            **exact,
        )
        == expected
    )


def test_places_when_J_does_not_divide_m():
    labels, loss = np.repeat(np.arange(8), 4), np.repeat(np.arange(8, 0, -1.0), 4)
    view = view_of(m=10, labels=labels, loss=loss)
    for J, overflow, places in [
        (4, "balanced", [3, 3, 2, 2]),
        (4, "truncate", [3, 3, 3, 1]),
        (7, "balanced", [2, 2, 2, 1, 1, 1, 1]),
        (7, "truncate", [2, 2, 2, 2, 2]),  # the last two of seven get none
        (5, "balanced", [2] * 5),
        (5, "truncate", [2] * 5),
    ]:
        assert (
            np.bincount(labels[play(fedlecc, view, top_clusters=J, overflow=overflow)]).tolist()
            == places
        )


def test_more_top_clusters_than_places_or_clusters():
    labels, loss = np.arange(12) % 6, np.arange(12.0)
    view = view_of(m=3, labels=labels, loss=loss)
    assert play(fedlecc, view, top_clusters=6) == play(fedlecc, view, top_clusters=3) == [11, 10, 9]
    assert play(fedlecc, view, top_clusters=99) == [11, 10, 9]


FEW_CLUSTERS = "selection.top_clusters: 9, but there are 2 clusters. All of them count."
FEW_PLACES = (
    "selection.top_clusters: {}, but only {} clients a round. "
    "The first {} clusters give one client each."
)


@pytest.mark.parametrize(
    ("J", "m", "clusters", "said"),
    [
        (9, 3, 2, [FEW_CLUSTERS]),
        (4, 3, 6, [FEW_PLACES.format(4, 3, 3)]),
        (3, 3, 6, [FEW_PLACES.format(3, 3, 3)]),
        (2, 3, 6, []),
        # two clusters have three places between them: J counts as 2, which is below m
        (3, 3, 2, ["selection.top_clusters: 3, but there are 2 clusters. All of them count."]),
        (9, 2, 2, [FEW_CLUSTERS, FEW_PLACES.format(9, 2, 2)]),
    ],
)
def test_top_clusters_without_effect_are_said_once(J, m, clusters, said, caplog):
    for round in (1, 2):
        view = view_of(m=m, labels=np.arange(12) % clusters, round=round)
        fedlecc(view, np.random.default_rng(0), top_clusters=J)
        assert [record.getMessage() for record in caplog.records] == said, "in round 1"


def test_the_ablation_without_clusters_has_no_top_clusters_to_speak_of(caplog):
    view = view_of(m=2, labels=np.arange(12) % 6)
    fedlecc(view, np.random.default_rng(0), top_clusters=5, rank_clusters="ignore")
    assert not caplog.records


def test_what_is_left_of_the_top_clusters_fills_up_cluster_by_cluster():
    labels = np.array([0, 1, 1, 1, 1, 2, 2, 2, 2])
    loss = np.array([9.0, 8, 1, 1, 1, 2.5, 2.4, 2.3, 2.2])  # means 9, 2.75, 2.35
    view = view_of(m=8, labels=labels, loss=loss)
    # places 3, 3, 2; cluster 0 is short by two: the rest of cluster 1 first, although client 7 has
    # a larger loss
    assert play(fedlecc, view, top_clusters=3) == [0, 1, 2, 3, 5, 6, 4, 7]


def test_equal_means_tie_although_their_sums_round_differently():
    assert play(
        fedlecc, view_of(m=1, labels=[0, 1, 1, 1], loss=np.full(4, 0.1)), top_clusters=1
    ) == [0]


@given(st.permutations(range(9)))
def test_renaming_clients_renames_the_answer(rename):
    labels, loss = (
        np.array([0, 0, 0, 1, 1, 2, 2, 2, 2]),
        np.array([3.1, 2.2, 1.3, 5.4, 4.5, 0.1, 6.2, 0.3, 0.4]),
    )
    rename = np.array(rename)
    renamed_labels, renamed_loss = np.empty(9, int), np.empty(9)
    renamed_labels[rename], renamed_loss[rename] = labels, loss
    for J in (1, 2, 3):
        before = play(fedlecc, view_of(m=5, labels=labels, loss=loss), top_clusters=J)
        after = play(
            fedlecc, view_of(m=5, labels=renamed_labels, loss=renamed_loss), top_clusters=J
        )
        assert after == rename[before].tolist()


# ---------------------------------------------------------------- where losses come from

LABELS = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])


def test_exact_asks_everyone_there_every_round_and_believes_fresh_losses_only():
    asked, there = [], np.arange(9) != 8
    stale = np.array([9.0, 9, 9, 0, 0, 0, 0, 0, 0])
    fresh = np.array([0.0, 0, 0, 1, 3, 2, 0, 0, 0])
    view = view_of(m=2, labels=LABELS, loss=stale, available=there)
    assert play(fedlecc, view, fresh=fresh, asked=asked, loss_source="exact", top_clusters=1) == [
        4,
        5,
    ]
    assert [ask.clients.tolist() for ask in asked] == [list(range(8))]
    assert asked[0].max_examples == 0


def test_a_client_that_fails_to_answer_is_left_out_of_the_mean_and_of_the_choice():
    fresh = np.array([NAN, 1, 1, 2, 2, 2, 0, 0, 0.0])
    # an old value must not help it
    view = view_of(m=6, labels=LABELS, loss=np.where(np.isnan(fresh), 50.0, NAN))
    assert play(fedlecc, view, fresh=fresh, loss_source="exact", top_clusters=2) == [
        3,
        4,
        5,
        1,
        2,
        6,
    ]
    everyone = play(
        fedlecc, view_of(m=9, labels=LABELS), fresh=fresh, loss_source="exact", top_clusters=2
    )
    assert everyone[-1] == 0  # rather than an empty place
    assert len(everyone) == 9


def test_subset_asks_a_few_and_keeps_old_losses_for_the_rest():
    asked, stale = [], np.arange(9.0)
    chosen = play(
        fedlecc,
        view_of(m=3, labels=LABELS, loss=stale),
        fresh=np.full(9, 20.0),
        asked=asked,
        loss_source="subset",
        subset_size=1,
        top_clusters=3,
    )
    lifted = int(asked[0].clients[0])
    assert len(asked[0].clients) == 1
    assert chosen[0] == lifted
    assert (
        len(
            play(
                fedlecc,
                view_of(m=3, labels=LABELS),
                fresh=stale,
                loss_source="subset",
                subset_size=99,
            )
        )
        == 3
    )


@pytest.mark.parametrize("source", ["piggyback", "post"])
def test_reported_losses_need_no_question(source):
    view = view_of(m=2, labels=LABELS, loss=np.arange(9.0))
    chosen = fedlecc(view, np.random.default_rng(0), loss_source=source, top_clusters=1)
    assert not isinstance(chosen, AskLoss)
    assert chosen.tolist() == [8, 7]


def test_first_round_takes_random_members_of_random_clusters():
    view = view_of(m=4, labels=LABELS)
    pairs = set()
    for seed in range(200):
        chosen = play(fedlecc, view, seed, top_clusters=2)
        found, sizes = np.unique(LABELS[chosen], return_counts=True)
        assert sizes.tolist() == [2, 2]
        pairs.add(tuple(found))
    assert pairs == {(0, 1), (0, 2), (1, 2)}
    share = often(fedlecc, view, 1500, top_clusters=2)
    assert np.abs(share - 4 / 9).max() < 4.5 * np.sqrt(0.25 / 1500)


def test_first_round_may_ask_everyone_once():
    asked, fresh = [], np.arange(9.0)
    view = view_of(m=2, labels=LABELS)
    assert play(fedlecc, view, fresh=fresh, asked=asked, init="evaluate", top_clusters=1) == [8, 7]
    assert len(asked[0].clients) == 9
    later = view_of(m=2, labels=LABELS, loss=np.where(np.arange(9) == 4, 1.0, NAN), round=2)
    asked.clear()
    play(fedlecc, later, fresh=fresh, asked=asked, init="evaluate", top_clusters=1)
    assert asked == []


def test_everyone_fails_to_answer():
    assert (
        len(
            set(
                play(
                    fedlecc, view_of(m=4, labels=LABELS), fresh=np.full(9, NAN), loss_source="exact"
                )
            )
        )
        == 4
    )


# ---------------------------------------------------------------- clients that never reported


def test_never_seen_clients_count_with_their_cluster():
    loss = np.array([4.0, NAN, 2.0, 3.5, NAN, NAN, 1, 1, 1])  # means 3, 3.5, 1
    assert play(fedlecc, view_of(m=6, labels=LABELS, loss=loss), top_clusters=2) == [
        3,
        4,
        5,
        0,
        1,
        2,
    ]


def test_never_seen_clients_tie_with_equal_losses_and_ties_go_by_id():
    for seed in range(200):
        rng = np.random.default_rng(seed)
        # in each cluster of 4 one, two or three clients have reported, all the same loss
        labels, loss = np.repeat(np.arange(10), 4), np.repeat(rng.random(10), 4)
        known = rng.permuted(np.arange(40).reshape(10, 4), axis=1)[:, : 1 + seed % 3]
        loss[np.setdiff1d(np.arange(40), known)] = NAN
        view = view_of(m=10, labels=labels, loss=loss, round=2)
        assert sorted(play(fedlecc, view, top_clusters=10)) == list(range(0, 40, 4))


def test_a_mean_that_rounds_differently_still_ties():
    # (0.1 + 0.2 + 0.3) / 3 is 0.20000000000000004
    view = view_of(m=3, labels=[0] * 4, loss=np.array([0.2, NAN, 0.1, 0.3]), round=2)
    assert play(fedlecc, view, top_clusters=1) == [3, 0, 1]
    view = view_of(m=3, labels=[0] * 4, loss=np.array([NAN, 0.2, 0.1, 0.3]), round=2)
    assert play(fedlecc, view, top_clusters=1) == [3, 0, 1]


def test_a_cluster_nobody_reported_from_comes_first():
    loss = np.array([4.0, 4, 4, NAN, NAN, NAN, 1, 1, 1])
    assert play(fedlecc, view_of(m=2, labels=LABELS, loss=loss), top_clusters=1) == [3, 4]


def test_explore_takes_the_never_seen_first_and_worse_clusters_before_better_ones():
    loss = np.array([4.0, NAN, 2.0, NAN, 3.5, NAN, 9, 9, 9])
    view = view_of(m=4, labels=LABELS, loss=loss)
    assert play(fedlecc, view, top_clusters=2, unseen="explore") == [3, 5, 1, 0]
    # 3 counts with its cluster, as much as 4: the lower id
    assert play(fedlecc, view, top_clusters=2) == [6, 7, 3, 4]


def test_every_client_is_explored_in_K_over_m_rounds():
    loss, seen = np.full(9, NAN), []
    for t in range(3):
        chosen = play(
            fedlecc,
            view_of(m=3, labels=LABELS, loss=loss, round=t + 1),
            t,
            top_clusters=3,
            unseen="explore",
        )
        loss[chosen] = 1.0
        seen += chosen
    assert sorted(seen) == list(range(9))


def test_ageing_brings_forgotten_clients_back():
    loss, last = np.array([1.0, 0.9, 0.8]), np.array([9, 1, 5])
    view = view_of(m=3, labels=[0, 0, 0], loss=loss, last=last, round=10)
    assert play(fedlecc, view) == [0, 1, 2]
    assert play(fedlecc, view, ageing=0.1) == [1, 2, 0]  # 1.1, 0.9 * 1.9, 0.8 * 1.5
    fresh = {"loss_source": "exact", "fresh": loss}
    assert play(fedlecc, view, ageing=0.1, **fresh) == [0, 1, 2]  # just asked: no age
    assert view.last_selected.tolist() == [9, 1, 5]


# ---------------------------------------------------------------- ablation, oddities

LOSS = np.array([0.1, 0.2, 0.3, 5, 6, 7, 1, 2, 3.0])


def test_random_clusters_with_top_losses():
    view = view_of(m=2, labels=LABELS, loss=LOSS)
    seen = {
        tuple(play(fedlecc, view, s, top_clusters=1, rank_clusters="random")) for s in range(60)
    }
    assert seen == {(2, 1), (5, 4), (8, 7)}


def test_top_clusters_with_random_clients():
    view = view_of(m=1, labels=LABELS, loss=LOSS)
    share = often(fedlecc, view, 600, top_clusters=1, rank_clients="random")
    assert np.abs(share[3:6] - 1 / 3).max() < 4.5 * np.sqrt(2 / 9 / 600)


def test_clusters_only_asks_for_no_losses():
    view, asked = view_of(m=3, labels=LABELS, loss=LOSS), []
    options = {
        "rank_clusters": "random",
        "rank_clients": "random",
        "loss_source": "exact",
        "top_clusters": 3,
    }
    for seed in range(20):
        assert sorted(LABELS[play(fedlecc, view, seed, asked=asked, **options)]) == [0, 1, 2]
    assert asked == []
    assert np.abs(often(fedlecc, view, 1000, **options) - 1 / 3).max() < 4.5 * np.sqrt(2 / 9 / 1000)


def test_losses_only_is_the_largest_losses():
    view = view_of(m=4, labels=LABELS, loss=LOSS)
    assert play(fedlecc, view, top_clusters=2, rank_clusters="ignore") == [5, 4, 3, 8]
    assert play(fedlecc, view, top_clusters=2) == [5, 4, 8, 7]


def test_chosen_clients_have_larger_losses_than_uniform_ones_and_spread_over_clusters():
    rng = np.random.default_rng(0)
    labels, loss = rng.integers(0, 10, 100), rng.random(100)
    chosen = play(fedlecc, view_of(m=10, labels=labels, loss=loss), top_clusters=5)
    assert loss[chosen].mean() > 0.8  # uniform: 0.5 with a standard error of 0.09
    assert np.unique(labels[chosen]).size == 5


def test_clients_in_no_cluster_fill_empty_places_only():
    labels, loss = np.array([-1, 0, -1, 0]), np.array([9.0, 1, NAN, 2])
    assert play(fedlecc, view_of(m=2, labels=labels, loss=loss)) == [3, 1]
    assert play(fedlecc, view_of(m=4, labels=labels, loss=loss)) == [3, 1, 0, 2]
    assert play(fedlecc, view_of(m=2, labels=[-1, -1, -1], loss=[1.0, 3.0, 2.0])) == [1, 2]


def test_edges():
    assert play(fedlecc, view_of(labels=[0, 0], available=[0, 0]), loss_source="exact") == []
    assert play(fedlecc, view_of(m=9, labels=[0])) == [0]
    assert sorted(play(fedlecc, view_of(m=5, labels=np.arange(5)))) == list(range(5))
    assert set(bind("selection", fedlecc, {}).needs()) == {"clustering", "loss"}


@pytest.mark.parametrize("options", [{"top_clusters": 0}, {"subset_size": 0}, {"ageing": -1.0}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(RecipeError, match=next(iter(options))):
        play(fedlecc, view_of(labels=LABELS), **options)


def test_without_clusters():
    with pytest.raises(RunError, match="no clustering"):
        play(fedlecc, view_of(3))
