from __future__ import annotations

from inspect import signature
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from fedskew.clustering import CLUSTERINGS, agreement, field, many_medoids, space, walk
from fedskew.clustering.space import PAIRWISE_LIMIT, chunks, enter, nearest_point
from fedskew.clustering.summary import _clear_cut, summarise
from fedskew.errors import RecipeError
from fedskew.types import Clustering, Geometry

INF = float("inf")
# grids small enough for a test
QUICK: dict[str, dict[str, object]] = {
    "optics": {"min_samples": (2, 10), "max_eps": (0.2, INF), "xi": (0.05, 0.2)},
    "dbscan": {"min_samples": (3,)},
    "kmeans": {"n_init": 2, "max_count": 12},
    "kmedoids": {"max_count": 12},
}


def separated(clients: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 6, clients)
    return np.sqrt(0.8 * np.eye(6)[groups] + 0.2 * rng.dirichlet(np.ones(6), clients)), groups


def skewed(clients: int, alpha: float, seed: int = 0) -> np.ndarray:
    return np.sqrt(np.random.default_rng(seed).dirichlet(np.full(10, alpha), clients) / 2)


def run(name: str, points: np.ndarray, seed: int = 0, **options: object) -> Clustering:
    return CLUSTERINGS[name](Geometry(points=points), np.random.default_rng(seed), **options)


# ---------------------------------------------------------------- the rule holds for everybody


@pytest.mark.parametrize("limit", [{}, {"exact_limit": 0}])
@pytest.mark.parametrize("name", ["optics", "dbscan"])
def test_6000_clients_keep_the_limit_on_noise(name: str, limit: dict[str, int]) -> None:
    # on a sample of 2,000 this grid was accepted with 64 % of the clients being noise
    grid = {"min_samples": (2,), "max_eps": (0.2,), "xi": (0.01,)}
    found = run(name, skewed(6_000, 0.5), **(grid if name == "optics" else QUICK[name]), **limit)
    if "fallback" in found.details:
        assert found.noise_fraction == 0.0
    else:
        assert found.noise_fraction <= found.details["thresholds"]["max_noise"] <= 0.5
        assert 2 <= found.k <= 3_000
        assert found.details["thresholds"]["min_clusters"] == 2
    assert found.exact != bool(limit)


# ---------------------------------------------------------------- row by row equals all pairs


@pytest.mark.parametrize("alpha", [0.05, 0.5])
@pytest.mark.parametrize("name", ["optics", "dbscan"])
def test_row_by_row_equals_the_matrix(
    name: str, alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = skewed(300, alpha)
    points[:20] = points[20:40]  # identical clients
    options = QUICK[name] | ({"eps": (0.1, 0.2, 0.3), "max_noise": 1.0} if name == "dbscan" else {})
    wanted = run(name, points, **options)
    monkeypatch.setattr(field, "PAIRWISE_LIMIT", 100)
    found = run(name, points, **options)
    assert found.exact
    assert found.labels.tolist() == wanted.labels.tolist()
    assert found.silhouette == pytest.approx(wanted.silhouette, abs=1e-12)
    assert found.details["params"] == wanted.details["params"]
    assert found.details["num_noise"] == wanted.details["num_noise"]


@pytest.mark.parametrize("rows", [False, True])
def test_a_walk_that_shares_the_wider_one_equals_a_fresh_one(rows: bool) -> None:
    points = np.round(skewed(250, 0.1), 2)  # ties
    distances = walk.Rows(points) if rows else walk.rounded(cdist(points, points))
    for core in walk.core_distances(distances, [2, 6]):
        wider = None
        for radius in (INF, 0.6, 0.3, 0.1):
            fresh = walk.order_clients(distances, core, radius)
            wider = walk.order_clients(distances, core, radius, wider)
            for one, other in zip(vars(fresh).values(), vars(wider).values(), strict=True):
                assert one.tolist() == other.tolist()


@pytest.mark.parametrize("alpha", [0.05, 2.0])
def test_a_contest_has_the_winner_of_all_scores(alpha: float) -> None:
    points, rng = skewed(200, alpha), np.random.default_rng(0)
    groupings = [points.argmax(axis=1), *(rng.integers(0, k, 200) for k in (3, 50, 150))]
    exact = [run_score(points, labels) for labels in groupings]
    scores = field.contest(points, groupings)
    best = int(np.argmax(exact))
    assert scores[best] == pytest.approx(exact[best], abs=1e-12)
    assert None in scores  # the others were not scored
    assert all(s is None or s == pytest.approx(e) for s, e in zip(scores, exact, strict=True))


def run_score(points: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(points, labels))


# ---------------------------------------------------------------- cells


def test_cells_are_equal_small_and_know_no_order() -> None:
    points = skewed(1_003, 0.1)
    points[:300] = points[300:600]  # identical clients
    cells = summarise(points, 200)
    sizes = np.bincount(cells.own)
    assert np.median(sizes) == 6
    assert 168 <= len(sizes) <= 200
    assert cells.weights.tolist() == sizes.tolist()
    for cell in (0, 77):
        assert cells.means[cell] == pytest.approx(points[cells.own == cell].mean(axis=0))
    assert (points[cells.rows] == cells.picked).all()
    assert len(np.unique(cells.rows)) == len(cells.rows) >= len(sizes)
    inside = ((points - cells.means[cells.own]) ** 2).sum()
    assert inside < 0.5 * ((points - points.mean(axis=0)) ** 2).sum()
    order = np.random.default_rng(1).permutation(1_003)
    shuffled = summarise(points[order], 200)
    assert shuffled.means == pytest.approx(cells.means, abs=1e-12)
    assert shuffled.picked.tolist() == cells.picked.tolist()


@pytest.mark.parametrize("name", sorted(CLUSTERINGS))
@pytest.mark.parametrize("exact_limit", [0, 50_000])
def test_seeds_and_the_order_of_clients_change_nothing(name: str, exact_limit: int) -> None:
    alpha = 0.5  # no groups: the hardest case
    points = skewed(5_001 if exact_limit else 6_000, alpha)
    if exact_limit and name == "optics":
        pytest.skip("exact OPTICS never looked at the seed")
    options = QUICK[name] | {"exact_limit": exact_limit, "summary_size": 600}
    first = run(name, points, 0, **options)
    assert run(name, points, 1, **options).labels.tolist() == first.labels.tolist()
    order = np.random.default_rng(2).permutation(len(points))
    shuffled = run(name, points[order], 3, **options)
    assert shuffled.k == first.k
    assert agreement(shuffled.labels, first.labels[order]).ari >= 0.99


@pytest.mark.parametrize("name", sorted(CLUSTERINGS))
def test_cells_agree_with_the_exact_answer_where_there_are_groups(name: str) -> None:
    points, groups = separated(1200)
    exact, near = run(name, points), run(name, points, exact_limit=0, summary_size=300)
    assert (exact.exact, near.exact) == (True, False)
    assert 200 <= near.details["params"]["scanned_cells"] <= 300
    assert agreement(near.labels, exact.labels).ari >= 0.9
    assert agreement(near.labels, groups).ari >= 0.9
    assert near.silhouette == pytest.approx(exact.silhouette, abs=0.05)
    assert near.details["silhouette_kind"] == "cells"


@pytest.mark.parametrize("name", ["dbscan", "optics"])
def test_cells_do_not_bridge_groups(name: str) -> None:
    """3,000 clients in ten groups as 500 cells: halves alone put clients of two groups into one
    cell, and the groups then flowed together (ARI .68 and .78).
    """
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 10, 3_000)
    rows = 0.8 * np.eye(10)[groups] + 0.2 * rng.dirichlet(np.ones(10), 3_000)
    found = run(name, np.sqrt(rows / 2), exact_limit=0, summary_size=500)
    assert agreement(found.labels, groups).ari > 0.99
    assert found.k == 10


def test_a_clear_cut_is_the_best_of_all_cuts() -> None:
    rng = np.random.default_rng(0)
    values = np.sort(np.r_[rng.normal(0, 0.1, 50), rng.normal(2, 0.1, 20)])

    def explained(k: int) -> float:
        sides = (values[:k], values[k:])
        return sum(len(side) * (side.mean() - values.mean()) ** 2 for side in sides)

    assert max(range(1, 70), key=explained) == 50
    assert _clear_cut(values, 1) == values[50]
    assert _clear_cut(values, 21) == values[49], "the best with 21 on either side"
    assert _clear_cut(values, 36) is None, "70 are not enough for that"
    assert _clear_cut(np.linspace(0, 1, 100), 1) is None, "evenly spread"
    assert _clear_cut(np.ones(10), 1) is None, "all the same"


@pytest.mark.parametrize("name", ["kmeans", "kmedoids"])
def test_counts_and_silhouettes_of_cells_track_the_exact_ones(name: str) -> None:
    points = skewed(1_500, 0.05)
    exact = run(name, points, **QUICK[name])
    near = run(name, points, exact_limit=0, summary_size=500, **QUICK[name])
    assert near.k == exact.k
    assert near.silhouette == pytest.approx(exact.silhouette, abs=0.02)


def test_counts_that_are_nearly_as_good_are_tried_on_everybody() -> None:
    found = run("kmeans", skewed(5_200, 0.5), max_count=5, summary_size=200)
    tried = found.details["finalists"]
    assert len(tried) > 1
    assert found.k == max(tried, key=tried.get)


@pytest.mark.parametrize("name", ["kmeans", "kmedoids"])
def test_everybody_decides_up_to_the_exact_limit(name: str) -> None:
    points = skewed(5_200, 0.1)
    found = run(name, points, max_count=12, summary_size=500)
    assert found.exact
    assert found.silhouette == pytest.approx(run_score(points, found.labels), abs=1e-9)
    assert found.silhouette == max(found.details["finalists"].values())
    centers = found.details["centers"]
    assert found.labels.tolist() == nearest_point(points, centers).tolist()
    if name == "kmeans":  # nobody and no centre moves any more
        means = np.array([points[found.labels == c].mean(axis=0) for c in range(found.k)])
        assert means == pytest.approx(centers)


@pytest.mark.parametrize("name", sorted(CLUSTERINGS))
def test_every_rule_counts_each_of_50000_clients(name: str) -> None:
    # OPTICS used cells from 20,000 on
    assert signature(CLUSTERINGS[name]).parameters["exact_limit"].default >= 50_000


def test_best_member_equals_brute_force() -> None:
    points = skewed(400, 0.3)
    members = np.flatnonzero(np.arange(400) % 3 > 0)
    totals = cdist(points[members], points[members]).sum(axis=1)
    own = summarise(points, 50).own
    found = many_medoids.best_member(points, members, own, int(members[0]))
    assert found == members[totals.argmin()]


# ---------------------------------------------------------------- memory, noise, small things


@pytest.mark.parametrize("name", sorted(CLUSTERINGS))
def test_many_clients_never_make_a_square_matrix(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, groups = separated(5_500)
    largest = 0

    def watched(a: np.ndarray, b: np.ndarray, *rest: str) -> np.ndarray:
        nonlocal largest
        largest = max(largest, len(a) * len(b))
        return cdist(a, b, *rest)

    import scipy

    from fedskew.clustering import dbscan, lloyd, noise, silhouette, summary

    fake = SimpleNamespace(
        spatial=SimpleNamespace(
            distance=SimpleNamespace(cdist=watched), KDTree=scipy.spatial.KDTree
        ),
        sparse=scipy.sparse,
    )
    for module in (space, summary, silhouette, noise, walk, many_medoids, lloyd, dbscan):
        monkeypatch.setattr(module, "scipy", fake)
    for exact_limit in (0, 50_000):
        options = QUICK[name] | {"summary_size": 400, "exact_limit": exact_limit}
        if name == "optics":
            options |= {"max_eps": (INF,), "min_samples": (10,)}
        found = run(name, points, **options)
        assert agreement(found.labels, groups).ari >= 0.9
        assert (found.labels >= 0).all()
    assert 0 < largest <= 4_000_000  # of 30,250,000 pairs


@pytest.mark.parametrize("name", ["optics", "dbscan"])
@pytest.mark.parametrize("policy", ["nearest", "singletons", "one", "drop"])
@pytest.mark.parametrize("cells", [False, True])
def test_noise_follows_the_policy(
    name: str, policy: str, cells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, _ = separated(600)
    # ten loners far away from everybody; in cells of one client they are alone too
    points[::60] = np.random.default_rng(0).normal(9, 9, (10, 6))
    monkeypatch.setattr(field, "PAIRWISE_LIMIT", 100)
    options = {"exact_limit": 0, "summary_size": 600} if cells else {}
    found = run(name, points, noise=policy, **QUICK[name], **options)
    loners = found.labels[::60]
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


def test_given_pairs_are_used_whatever_the_limit() -> None:
    points, groups = separated(400)
    geometry = Geometry(pairwise=cdist(points, points), known=np.arange(400) != 5)
    for name in ("kmedoids", "optics", "dbscan"):
        found = CLUSTERINGS[name](geometry, np.random.default_rng(0), exact_limit=0)
        assert found.exact
        assert found.labels[5] == -1
        assert agreement(found.labels, groups).ari >= 0.9


def test_nearest_in_blocks_equals_brute_force() -> None:
    rng = np.random.default_rng(0)
    points, targets = rng.random((3000, 5)), np.sort(rng.choice(3000, 700, replace=False))
    wanted = cdist(points, points[targets])
    assert nearest_point(points, points[targets]).tolist() == wanted.argmin(axis=1).tolist()


def test_chunks_cover_everything_once() -> None:
    covered = np.concatenate([np.arange(s.start, s.stop) for s in chunks(3000, 1 << 18)])
    assert covered.tolist() == list(range(3000))


def test_a_matrix_above_the_limit_is_refused() -> None:
    crowd = enter(Geometry(points=np.zeros((PAIRWISE_LIMIT + 1, 1))))
    with pytest.raises(RecipeError, match="5001"):
        crowd.matrix()


@pytest.mark.parametrize("name", sorted(CLUSTERINGS))
def test_many_identical_clients_are_one_cluster(name: str) -> None:
    found = run(name, np.full((6000, 3), 0.5))
    assert (found.k, found.silhouette) == (1, None)
