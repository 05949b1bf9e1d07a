from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn import metrics

from fedskew.clustering.silhouette import (
    is_defined,
    silhouette,
    silhouette_of_points,
    silhouette_samples,
    simplified_silhouette,
    subsampled_silhouette,
)


def blobs(sizes: list[int], seed: int = 0, spread: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    return rng.normal(0, 4, (len(sizes), 3))[groups] + rng.normal(
        0, spread, (len(groups), 3)
    ), groups


def test_hand_computed_line_of_four() -> None:
    line = np.array([0.0, 1.0, 10.0, 11.0])
    samples = silhouette_samples(np.abs(np.subtract.outer(line, line)), np.array([0, 0, 1, 1]))
    assert samples == pytest.approx([1 - 1 / 10.5, 1 - 1 / 9.5, 1 - 1 / 9.5, 1 - 1 / 10.5])


@pytest.mark.parametrize("count", [2, 5, 40, 79])
def test_equals_scikit_learn_with_gaps_singletons_and_any_count(count: int) -> None:
    rng = np.random.default_rng(count)
    points = rng.random((80, 4))
    # numbers with gaps
    labels = np.concatenate([np.arange(count), rng.integers(0, count, 80 - count)]) * 3
    distances = cdist(points, points)
    wanted = metrics.silhouette_samples(distances, labels, metric="precomputed")
    assert silhouette_samples(distances, labels) == pytest.approx(wanted, abs=1e-12)
    assert silhouette(distances, labels) == pytest.approx(wanted.mean(), abs=1e-12)
    assert silhouette_of_points(points, labels) == pytest.approx(wanted.mean(), abs=1e-12)


def test_noise_takes_no_part() -> None:
    points, groups = blobs([20, 20, 10])
    labels = np.where(np.arange(50) % 7 == 0, -1, groups)
    inside = labels >= 0
    wanted = metrics.silhouette_score(points[inside], labels[inside])
    distances = cdist(points, points)
    assert silhouette(distances, labels) == pytest.approx(wanted, abs=1e-12)
    assert silhouette_of_points(points, labels) == pytest.approx(wanted, abs=1e-12)
    assert np.isnan(silhouette_samples(distances, labels)[~inside]).all()


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [-1, -1, -1], [-1, 0, 1]])
def test_none_where_not_defined(labels: list[int]) -> None:
    points, given = np.arange(3.0)[:, None], np.array(labels)
    assert not is_defined(given)
    assert silhouette(cdist(points, points), given) is None
    assert silhouette_of_points(points, given) is None
    assert simplified_silhouette(points, given) is None
    assert (
        subsampled_silhouette(
            lambda a, b: cdist(points[a], points[b]), given, np.random.default_rng(0)
        )
        is None
    )


def test_identical_members_of_two_clusters_score_zero_not_nan() -> None:
    assert silhouette_samples(np.zeros((4, 4)), np.array([0, 0, 1, 1])).tolist() == [0, 0, 0, 0]


def test_simplified_is_near_exact_on_tight_groups_and_exact_by_hand() -> None:
    points, groups = blobs([30, 50, 20], spread=0.05)
    exact = silhouette_of_points(points, groups)
    assert exact is not None
    assert simplified_silhouette(points, groups) == pytest.approx(exact, abs=0.02)
    line = np.array([[0.0], [1.0], [10.0], [11.0]])
    assert simplified_silhouette(line, np.array([0, 0, 1, 1])) == pytest.approx(
        1 - (0.5 / 10.5 + 0.5 / 9.5) / 2
    )


def test_subsampled_is_near_exact_and_weights_small_clusters_by_their_size() -> None:
    points, groups = blobs([700, 700, 4], spread=1.5, seed=3)
    exact = silhouette_of_points(points, groups)
    assert exact is not None
    near = subsampled_silhouette(
        lambda a, b: cdist(points[a], points[b]), groups, np.random.default_rng(0), size=200
    )
    assert near == pytest.approx(exact, abs=0.05)


def test_subsampled_with_everybody_in_the_sample_is_exact() -> None:
    points, groups = blobs([20, 20, 10])
    everyone = subsampled_silhouette(
        lambda a, b: cdist(points[a], points[b]), groups, np.random.default_rng(0)
    )
    assert everyone == pytest.approx(silhouette_of_points(points, groups), abs=1e-12)
