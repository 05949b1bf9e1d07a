from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn import metrics

from fedskew.clustering.silhouette import (
    is_defined,
    silhouette,
    silhouette_bounds,
    silhouette_of_points,
    silhouette_samples,
    silhouettes_of_points,
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


def test_identical_members_of_two_clusters_score_zero_not_nan() -> None:
    assert silhouette_samples(np.zeros((4, 4)), np.array([0, 0, 1, 1])).tolist() == [0, 0, 0, 0]


def test_several_groupings_in_one_pass_equal_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    points, groups = blobs([60, 70, 20], spread=1.5)
    noisy = np.where(np.arange(150) % 7 == 0, -1, groups)
    groupings = [groups, np.zeros(150, np.int64), noisy, np.arange(150) // 2]
    monkeypatch.setattr("fedskew.clustering.space._CHUNK", 1000)  # many blocks
    distances = cdist(points, points)
    wanted = [silhouette(distances, labels) for labels in groupings]
    assert wanted[1] is None
    assert silhouettes_of_points(points, groupings) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("count", [2, 7, 60, 99])
@pytest.mark.parametrize("spread", [0.0, 0.1, 2.0])
def test_bounds_hold_the_exact_silhouette(count: int, spread: float) -> None:
    points, groups = blobs([100 // count] * count, seed=count, spread=spread)
    points = np.vstack([points, points[:2]])
    labels = np.append(groups, [-1, groups[0]])
    exact = silhouette_of_points(points, labels)
    low, high = silhouette_bounds(points, labels)
    assert exact is not None
    assert low <= exact <= high
    if spread == 0.0:
        assert high - low < 1e-6  # tight clusters need no exact score
