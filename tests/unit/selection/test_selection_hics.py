"""HiCS-FL: entropy and distance against scipy, everybody once, then clusters by entropy.

Members are drawn by size.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from scipy.special import softmax
from scipy.stats import entropy

from fedskew.errors import RecipeError, RunError
from fedskew.selection.hics import (
    HiCS,
    cluster,
    distances_of,
    draw,
    entropy_of,
    fill_unknown,
)
from fedskew.types import Feedback, Population, View


def view_of(clients, m, *, round=1, times=None, sizes=None, available=None):
    there = np.ones(clients, bool) if available is None else available
    times = np.zeros(clients) if times is None else times
    sizes = np.full(clients, 10) if sizes is None else sizes
    return View(round, m, Population(sizes), there, np.full(clients, np.nan), times, times)


def feedback_of(clients, bias, *, width=3, with_bias=True):
    n, classes = bias.shape
    weights = np.full((n, classes * width), 7.0)
    delta = np.hstack([weights, bias]) if with_bias else weights
    return Feedback(
        1, clients, np.ones(n), np.ones(n), np.ones(n), np.ones(n), delta, (classes, width)
    )


def test_entropy_is_the_one_of_scipy():
    updates = np.random.default_rng(0).normal(size=(7, 5))
    assert entropy_of(updates, 0.3) == pytest.approx(
        entropy(softmax(updates / 0.3, axis=1), axis=1)
    )
    assert entropy_of(np.array([[1e6, -1e6]]), 1e-3) == pytest.approx([0.0])


def test_the_distance_and_the_clusters_of_equation_9():
    rng = np.random.default_rng(1)
    updates, entropies = rng.normal(size=(15, 4)), rng.random(15)
    angles = np.arccos(np.clip(1 - pdist(updates, "cosine"), -1, 1))
    distances = angles + 2.0 * pdist(entropies[:, None])
    assert distances_of(updates, entropies, 2.0) == pytest.approx(distances, abs=1e-5)
    expected = fcluster(linkage(distances, "average"), 4, "maxclust")
    found = cluster(updates, entropies, 2.0, 4, "average")
    assert len(set(zip(found, expected, strict=True))) == len(set(found)) == 4


def test_angles_at_the_ends():
    updates = np.array([[1.0, 0], [3, 0], [-2, 0], [0, 0]])
    found = distances_of(updates, np.zeros(4), 10.0)
    assert found == pytest.approx([0, np.pi, np.pi / 2, np.pi, np.pi / 2, np.pi / 2], abs=5e-4)


def test_balanced_clients_are_told_from_skewed_ones():
    """Eq 6: the bias moves with p - 1/C; a large lambda puts balanced clients into one cluster.

    However they point.
    """
    shares = np.vstack(
        [
            np.eye(4),
            np.full((4, 4), 0.25) + np.random.default_rng(0).normal(scale=0.01, size=(4, 4)),
        ]
    )
    updates = 0.1 * (shares - 0.25)
    labels = cluster(updates, entropy_of(updates, 0.01), 10.0, 2, "ward")
    assert len(set(labels[:4])) == len(set(labels[4:])) == 1
    assert labels[0] != labels[4]


def test_everybody_is_drawn_once_before_anything_else():
    memory, times, seen = {}, np.zeros(11), []
    rng = np.random.default_rng(0)
    for round in range(1, 5):
        ids, memory = HiCS().choose(
            memory, view_of(11, 3, round=round, times=times.copy()), np.random.default_rng(round)
        )
        memory = HiCS(temperature=0.1).learn(
            memory, feedback_of(ids, rng.normal(size=(len(ids), 4)))
        )
        times[ids] += 1
        seen += ids.tolist()
    assert sorted(seen[:11]) == list(range(11))
    assert len(seen) == 12


def test_learning_keeps_the_bias_part_of_the_last_update():
    memory = {"seen": np.zeros(3, bool)}
    once = HiCS().learn(memory, feedback_of([2, 0], np.array([[1.0, 2], [3, 4]])))
    twice = HiCS().learn(once, feedback_of([2], np.array([[5.0, 6]])))
    assert twice["bias"].tolist() == [[3, 4], [0, 0], [5, 6]]
    assert twice["seen"].tolist() == [True, False, True]
    assert (memory["seen"].tolist(), once["bias"][2].tolist()) == ([False] * 3, [1, 2])


def test_a_layer_without_bias_is_refused():
    with pytest.raises(RunError, match=r"selection hics: the model's output layer has no bias"):
        HiCS().learn(
            {"seen": np.zeros(2, bool)}, feedback_of([0], np.ones((1, 4)), with_bias=False)
        )


def test_clusters_by_heat_then_members_by_size():
    labels, heat, sizes = np.array([0, 0, 1, 2]), np.array([1.0, 1, 0, 0]), np.array([10, 30, 5, 5])
    rng, often = np.random.default_rng(0), np.zeros(4)
    for _ in range(6000):
        often[draw(labels, heat, sizes, 1, rng)] += 1
    share = np.exp([1, 0, 0]) / np.exp([1, 0, 0]).sum()
    expected = [share[0] / 4, share[0] * 3 / 4, share[1], share[2]]
    assert often / 6000 == pytest.approx(expected, abs=0.025)


def test_an_empty_cluster_is_not_drawn_again():
    labels, heat = np.array([0, 1, 1, 1]), np.array([5000.0, 0, 0, 0])
    drawn = draw(labels, heat, np.ones(4, np.int64), 4, np.random.default_rng(0))
    assert drawn[0] == 0
    assert sorted(drawn.tolist()) == [0, 1, 2, 3]


def test_balanced_clients_are_chosen_more_often_until_gamma_cools():
    """Fails if the rule becomes uniform: 4 balanced among 20 clients, of which 4 are drawn."""
    rng = np.random.default_rng(0)
    shares = np.vstack([np.full((4, 5), 0.2), np.eye(5)[rng.integers(5, size=16)]]) + rng.normal(
        scale=0.01, size=(20, 5)
    )
    memory = {"seen": np.ones(20, bool), "bias": 0.1 * (shares - 0.2)}

    def share_of_balanced(**options):
        view = view_of(20, 4, round=50, times=np.ones(20))
        drawn = [
            HiCS(temperature=0.01, **options).choose(memory, view, np.random.default_rng(s))[0]
            for s in range(150)
        ]
        return np.mean(np.stack(drawn) < 4)

    assert share_of_balanced() > 0.8
    assert share_of_balanced(anneal_rounds=50) < 0.5  # all clusters alike: one of four
    assert share_of_balanced(gamma=0.0) == share_of_balanced(anneal_rounds=50)
    # halfway there gamma is half of its 4
    assert (
        share_of_balanced(anneal_rounds=100) == share_of_balanced(gamma=2.0) != share_of_balanced()
    )


def test_a_client_that_never_answered_is_neither_lost_nor_favoured():
    rng = np.random.default_rng(0)
    seen = np.arange(8) > 0
    memory = {"seen": seen, "bias": np.where(seen[:, None], rng.normal(size=(8, 4)), 0.0)}
    view = view_of(8, 2, round=9, times=np.ones(8))
    often = np.bincount(
        np.concatenate(
            [
                HiCS(temperature=1.0).choose(memory, view, np.random.default_rng(s))[0]
                for s in range(400)
            ]
        )
    )
    assert 10 < often[0] < 250
    assert fill_unknown(np.array([9.0, 1.0, 3.0]), np.array([False, True, True])).tolist() == [
        2.0,
        1.0,
        3.0,
    ]


def test_one_client_and_no_more():
    memory = {"seen": np.ones(1, bool), "bias": np.ones((1, 3))}
    assert HiCS().choose(memory, view_of(1, 5, times=np.ones(1)), np.random.default_rng(0))[
        0
    ].tolist() == [0]


def test_temperature_must_be_positive():
    with pytest.raises(RecipeError, match=r"selection\.temperature"):
        HiCS(temperature=0.0).choose({}, view_of(2, 1), np.random.default_rng(0))


def test_defaults_are_those_of_the_paper():
    assert HiCS() == HiCS(temperature=0.0025, penalty=10.0, gamma=4.0, anneal_rounds=0)
