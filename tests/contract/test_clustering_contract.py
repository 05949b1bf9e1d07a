"""What every clustering promises, whatever its algorithm."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from fedskew.clustering import CLUSTERINGS, agreement
from fedskew.types import Clustering, Geometry

every_clustering = pytest.mark.parametrize("name", sorted(CLUSTERINGS))
seeds = st.integers(0, 2**32 - 1)
quick = settings(max_examples=10, deadline=None)


def run(name: str, geometry: Geometry, seed: int = 0, **options: object) -> Clustering:
    return CLUSTERINGS[name](geometry, np.random.default_rng(seed), **options)


def label_points(seed: int) -> np.ndarray:
    """Square roots of label proportions: a few clients or many, sometimes with identical ones."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(
        np.full(int(rng.integers(2, 8)), rng.choice([0.1, 1.0, 30.0])), int(rng.integers(1, 40))
    )
    return np.sqrt(rows[rng.integers(0, len(rows), len(rows))] if rng.random() < 0.3 else rows)


def separated(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three equal groups of 8 to 14 clients, far apart; shuffled.

    Equal, because a density clustering may leave 30 % of the clients as noise and is scored on the
    rest (docs/methods.md 3.2): a whole group of 29 % was seen to be given up for a silhouette of
    0.953 instead of 0.951.
    """
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat([0, 1, 2], rng.integers(8, 15)))
    return np.eye(3)[groups] + rng.uniform(-0.05, 0.05, (len(groups), 3)), groups


@every_clustering
@quick
@given(seed=seeds)
def test_known_clients_are_partitioned_and_numbered_by_smallest_member(
    name: str, seed: int
) -> None:
    points = label_points(seed)
    known = np.random.default_rng(seed).random(len(points)) < 0.8
    points[~known] = np.nan
    found = run(name, Geometry(points=points, known=known))
    assert ((found.labels >= 0) == known).all()
    assert sorted(set(found.labels[known].tolist())) == list(range(found.k))
    firsts = [int(found.members(cluster)[0]) for cluster in range(found.k)]
    assert firsts == sorted(firsts)
    assert found.silhouette is None or -1 <= found.silhouette <= 1
    assert 0 <= found.noise_fraction <= 1
    assert found.details["num_clusters"] == found.k
    assert len(found.details["centers"]) == found.k


@every_clustering
@quick
@given(seed=seeds)
def test_the_same_seed_gives_the_same_answer_and_inputs_stay(name: str, seed: int) -> None:
    points = label_points(seed)
    before = points.copy()
    geometry = Geometry(points=points)
    first, second = run(name, geometry, seed), run(name, geometry, seed)
    assert first.labels.tolist() == second.labels.tolist()
    assert first.silhouette == second.silhouette
    assert (points == before).all()


@every_clustering
@quick
@given(seed=seeds)
def test_three_separated_groups_are_recovered_in_any_order_of_clients(name: str, seed: int) -> None:
    points, groups = separated(seed)
    order = np.random.default_rng(seed + 1).permutation(len(groups))
    straight, shuffled = (
        run(name, Geometry(points=points)),
        run(name, Geometry(points=points[order])),
    )
    assert straight.k == shuffled.k == 3
    assert agreement(straight.labels, groups).ari == 1.0
    assert agreement(shuffled.labels, straight.labels[order]).ari == 1.0
    # where the walk of optics starts decides who is noise, and noise is not scored
    if name in ("kmedoids", "kmeans"):
        assert shuffled.silhouette == pytest.approx(straight.silhouette)


# k-means is nothing without points
@pytest.mark.parametrize("name", sorted(set(CLUSTERINGS) - {"kmeans"}))
@quick
@given(seed=seeds)
def test_distances_alone_say_as_much_as_points(name: str, seed: int) -> None:
    points, groups = separated(seed)
    assert agreement(run(name, Geometry(pairwise=cdist(points, points))).labels, groups).ari == 1.0


@every_clustering
@pytest.mark.parametrize("clients", [0, 1, 2, 3, 5, 40])
def test_identical_rows_are_one_cluster(name: str, clients: int) -> None:
    for geometry in (
        Geometry(points=np.full((clients, 4), 0.25)),
        Geometry(points=np.ones((clients, 2)), pairwise=np.zeros((clients,) * 2)),
    ):
        found = run(name, geometry)
        assert found.labels.tolist() == [0] * clients
        assert found.silhouette is None
        assert found.noise_fraction == 0.0


@every_clustering
def test_fewer_than_three_clients_are_one_cluster_however_different(name: str) -> None:
    found = run(name, Geometry(points=np.eye(2)))
    assert (found.labels.tolist(), found.silhouette) == ([0, 0], None)
    known = np.array([True, False, False, True])
    assert run(name, Geometry(points=np.eye(4), known=known)).labels.tolist() == [0, -1, -1, 0]


@every_clustering
@pytest.mark.parametrize("clients", [3, 4, 7])
def test_few_clients_are_no_exception(name: str, clients: int) -> None:
    found = run(name, Geometry(points=np.random.default_rng(clients).random((clients, 3))))
    assert (found.labels >= 0).all()


@pytest.mark.parametrize("name", ["optics", "dbscan"])
@pytest.mark.parametrize("policy", ["nearest", "singletons", "one", "drop"])
@quick
@given(seed=seeds)
def test_noise_policies_place_every_client_exactly_once(name: str, policy: str, seed: int) -> None:
    points, groups = separated(seed)
    points = np.vstack([points, [[5.0, 5.0, 5.0], [-5.0, 5.0, -5.0]]])  # two loners
    found = run(name, Geometry(points=points), noise=policy)
    noise = found.details["num_noise"]
    assert noise >= 2
    assert found.noise_fraction == pytest.approx(noise / len(points))
    assert found.k == 3 + {"nearest": 0, "singletons": noise, "one": 1, "drop": 0}[policy]
    assert (found.labels < 0).sum() == (noise if policy == "drop" else 0)
    if policy in ("nearest", "drop"):
        assert agreement(found.labels[:-2], groups).ari == 1.0
    elif policy == "one":
        assert found.labels[-1] == found.labels[-2]
    else:
        assert np.bincount(found.labels)[found.labels[-2:]].tolist() == [1, 1]


@every_clustering
def test_the_signature_is_a_recipe_schema(name: str) -> None:
    cluster = CLUSTERINGS[name]
    parameters = list(inspect.signature(cluster).parameters.values())
    assert [p.name for p in parameters[:2]] == ["geometry", "rng"]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in parameters[2:])
    assert get_type_hints(cluster)["return"] is Clustering
