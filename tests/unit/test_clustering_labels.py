from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from fedskew.clustering import (
    CLUSTERINGS,
    agreement,
    assign,
    assign_by_distances,
    relabel,
    stability,
)
from fedskew.clustering.noise import NoisePolicy, nearest_clusters, resolve_noise
from fedskew.errors import RecipeError
from fedskew.types import Clustering, Geometry


def test_relabel_orders_by_smallest_member_and_keeps_noise() -> None:
    labels, old = relabel(np.array([-1, 9, 4, 9, 0, -1]))
    assert labels.tolist() == [-1, 0, 1, 0, 2, -1]
    assert old.tolist() == [9, 4, 0]
    assert relabel(np.array([-1, -1]))[0].tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("nearest", [0, 0, 1, 1, 0, 1]),
        ("singletons", [0, 0, 1, 1, 2, 3]),
        ("one", [0, 0, 1, 1, 2, 2]),
        ("drop", [0, 0, 1, 1, -1, -1]),
    ],
)
def test_noise_policies(policy: NoisePolicy, wanted: list[int]) -> None:
    line = np.array([0.0, 1.0, 10.0, 11.0, 3.0, 7.0])
    distances, labels = np.abs(np.subtract.outer(line, line)), np.array([0, 0, 1, 1, -1, -1])
    nearest = nearest_clusters(distances, labels)
    assert resolve_noise(labels, policy, nearest).tolist() == wanted
    assert labels.tolist() == [0, 0, 1, 1, -1, -1]


def test_nearest_is_by_mean_distance_not_by_nearest_member() -> None:
    line = np.array([0.0, 9.0, 5.5, 6.5, 4.0])  # client 4: means 4.5 (cluster 0) and 2 (cluster 1)
    distances = np.abs(np.subtract.outer(line, line))
    assert nearest_clusters(distances, np.array([0, 0, 1, 1, -1]))[4] == 1
    line[4] = -1.0  # nearest member is client 0 at 1, but means are 5.5 and 7
    distances = np.abs(np.subtract.outer(line, line))
    assert nearest_clusters(distances, np.array([0, 0, 1, 1, -1]))[4] == 0
    assert nearest_clusters(distances, np.full(5, -1)).tolist() == [0] * 5


@pytest.mark.parametrize("name", sorted(CLUSTERINGS))
def test_every_client_would_be_assigned_to_its_own_cluster(name: str) -> None:
    rng = np.random.default_rng(0)
    points = np.eye(3)[np.repeat([2, 0, 1], 15)] + rng.normal(0, 0.03, (45, 3))
    found = CLUSTERINGS[name](Geometry(points=points), rng)
    assert found.k == 3
    assert assign(found, points).tolist() == found.labels.tolist()
    assert assign(found, np.array([0.0, 0.0, 1.1])).tolist() == [0]
    assert assign_by_distances(found, cdist(points, points)).tolist() == found.labels.tolist()


def test_assign_without_centres_says_what_to_do() -> None:
    with pytest.raises(RecipeError, match="assign_by_distances"):
        assign(Clustering(np.array([0, 1])), np.zeros((1, 2)))
    with pytest.raises(RecipeError, match="no clusters"):
        assign_by_distances(Clustering(np.array([-1])), np.zeros((1, 1)))


def test_agreement_ignores_clients_without_a_group() -> None:
    same = agreement(np.array([1, 1, 0, 0, -1, 0]), np.array([0, 0, 5, 5, 5, -1]))
    assert (same.ari, same.num_clients) == (1.0, 4)
    assert same.ami == pytest.approx(1.0)
    crossed = agreement(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
    assert crossed.ari == pytest.approx(-0.5)
    assert np.isnan(agreement(np.array([-1]), np.array([0])).ari)


def test_stability_falls_with_perturbation() -> None:
    rng = np.random.default_rng(0)
    points = np.eye(3)[np.repeat([0, 1, 2], 20)]

    def again(noise: float) -> np.ndarray:
        def repeat(draw: int) -> Clustering:
            moved = points + np.random.default_rng(draw).normal(0, noise, points.shape)
            return CLUSTERINGS["kmedoids"](Geometry(points=moved), rng, count=3)

        return stability(CLUSTERINGS["kmedoids"](Geometry(points=points), rng), repeat, draws=4)

    assert again(0.01).tolist() == [1.0] * 4
    assert again(1.5).mean() < 0.5
