from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from fedskew.clustering import CLUSTERINGS, agreement
from fedskew.clustering.space import PAIRWISE_LIMIT, chunks, enter, nearest_point, nearest_row
from fedskew.errors import RecipeError
from fedskew.types import Geometry


def separated(clients: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 6, clients)
    return np.sqrt(0.8 * np.eye(6)[groups] + 0.2 * rng.dirichlet(np.ones(6), clients)), groups


@pytest.mark.parametrize("name", sorted(CLUSTERINGS))
def test_approximate_path_agrees_with_the_exact_one(name: str) -> None:
    points, groups = separated(1200)
    geometry = Geometry(points=points)
    exact = CLUSTERINGS[name](geometry, np.random.default_rng(0))
    near = CLUSTERINGS[name](geometry, np.random.default_rng(0), exact_limit=300, sample_size=300)
    assert (exact.exact, near.exact) == (True, False)
    assert near.details["params"]["scanned_clients"] <= 300
    assert agreement(near.labels, exact.labels).ari >= 0.9
    assert agreement(near.labels, groups).ari >= 0.9
    assert near.silhouette == pytest.approx(exact.silhouette, abs=0.05)
    assert near.details["silhouette_kind"] == "subsampled"


@pytest.mark.parametrize("name", sorted(CLUSTERINGS))
def test_many_clients_never_make_a_square_matrix(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, groups = separated(8_000)
    largest = 0
    from fedskew.clustering import space

    def watched(a: np.ndarray, b: np.ndarray, *rest: str) -> np.ndarray:
        nonlocal largest
        largest = max(largest, len(a) * len(b))
        return cdist(a, b, *rest)

    distance = SimpleNamespace(distance=SimpleNamespace(cdist=watched))
    monkeypatch.setattr(space, "scipy", SimpleNamespace(spatial=distance))
    found = CLUSTERINGS[name](Geometry(points=points), np.random.default_rng(0), sample_size=400)
    assert agreement(found.labels, groups).ari >= 0.9
    assert 0 < largest <= 400 * 400
    assert (found.labels >= 0).all()


@pytest.mark.parametrize("name", ["optics", "dbscan"])
@pytest.mark.parametrize("policy", ["nearest", "singletons", "one", "drop"])
def test_noise_outside_the_sample_follows_the_policy(name: str, policy: str) -> None:
    points, _ = separated(2000)
    # ten loners far away from everybody
    points[::200] = np.random.default_rng(0).normal(9, 9, (10, 6))
    found = CLUSTERINGS[name](
        Geometry(points=points),
        np.random.default_rng(0),
        noise=policy,
        exact_limit=300,
        sample_size=300,
    )
    loners = found.labels[::200]
    assert found.details["num_noise"] >= 10
    if policy == "drop":
        assert (loners == -1).all()
    elif policy == "one":
        assert len(set(loners.tolist())) == 1
        assert found.k == 7
    elif policy == "singletons":
        assert np.bincount(found.labels)[loners].tolist() == [1] * 10
    else:
        assert found.k == 6


def test_pairwise_only_works_on_a_sample_too() -> None:
    points, groups = separated(800)
    geometry = Geometry(pairwise=cdist(points, points), known=np.arange(800) != 5)
    for name in ("kmedoids", "optics", "dbscan"):
        found = CLUSTERINGS[name](
            geometry, np.random.default_rng(0), exact_limit=200, sample_size=200
        )
        assert found.labels[5] == -1
        assert agreement(found.labels, groups).ari >= 0.9


def test_scan_subsample_is_reported_as_approximate() -> None:
    points, groups = separated(500)
    for name in ("kmedoids", "kmeans"):
        found = CLUSTERINGS[name](
            Geometry(points=points), np.random.default_rng(0), scan="subsample", sample_size=150
        )
        assert not found.exact
        assert agreement(found.labels, groups).ari >= 0.9


def test_nearest_in_blocks_equals_brute_force() -> None:
    rng = np.random.default_rng(0)
    points, targets = rng.random((3000, 5)), np.sort(rng.choice(3000, 700, replace=False))
    wanted = cdist(points, points[targets])
    assert nearest_point(points, points[targets]).tolist() == wanted.argmin(axis=1).tolist()
    for geometry in (Geometry(points=points), Geometry(pairwise=cdist(points, points))):
        found, far = nearest_row(enter(geometry), targets)
        assert found.tolist() == wanted.argmin(axis=1).tolist()
        assert far == pytest.approx(wanted.min(axis=1))


def test_chunks_cover_everything_once() -> None:
    covered = np.concatenate([np.arange(s.start, s.stop) for s in chunks(3000, 1 << 18)])
    assert covered.tolist() == list(range(3000))


def test_a_matrix_above_the_limit_is_refused() -> None:
    space = enter(Geometry(points=np.zeros((PAIRWISE_LIMIT + 1, 1))))
    with pytest.raises(RecipeError, match="5001"):
        space.matrix()


@pytest.mark.parametrize("name", sorted(CLUSTERINGS))
def test_many_identical_clients_are_one_cluster(name: str) -> None:
    found = CLUSTERINGS[name](Geometry(points=np.full((6000, 3), 0.5)), np.random.default_rng(0))
    assert (found.k, found.silhouette) == (1, None)
