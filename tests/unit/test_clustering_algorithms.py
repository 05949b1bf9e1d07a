from __future__ import annotations

from itertools import combinations
from typing import Any

import kmedoids as library
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from fedskew.clustering import CLUSTERINGS, kmeans, kmedoids, lloyd
from fedskew.errors import RecipeError, SignalError
from fedskew.types import Geometry

INF = float("inf")


def skewed(clients: int, seed: int = 0, classes: int = 6, alpha: float = 0.15) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(classes, alpha), clients)


def hellinger(rows: np.ndarray) -> Geometry:
    return Geometry(points=np.sqrt(rows / 2), name="hellinger")


def psi(counts: np.ndarray) -> Geometry:
    """docs/methods.md 2.11 and 3.5, written out."""
    rows, mix = counts / counts.sum(axis=1, keepdims=True), counts.sum(axis=0) / counts.sum()
    terms = (rows - mix) * np.log((rows + 1e-6) / (mix + 1e-6))
    features = np.column_stack([terms.sum(axis=1), terms])
    deviation = features.std(axis=0)
    return Geometry(
        points=(features - features.mean(axis=0)) / np.where(deviation > 1e-12, deviation, 1.0),
        name="psi",
    )


def similarity_zero(class_sizes: list[int], clients: int) -> np.ndarray:
    """docs/methods.md 1.4 with S=0: contiguous blocks of the sorted labels."""
    labels = np.repeat(np.arange(len(class_sizes)), class_sizes)
    width = len(labels) // clients
    return np.array(
        [
            np.bincount(labels[i * width : (i + 1) * width], minlength=len(class_sizes))
            for i in range(clients)
        ]
    )


# ---------------------------------------------------------------- k-medoids


def test_lazy_build_equals_the_library() -> None:
    points = skewed(120, 5)
    distances = cdist(points, points)
    assert (
        kmedoids.build(distances, 60).tolist() == library.pam_build(distances, 60).medoids.tolist()
    )


def test_fasterpam_is_not_worse_than_the_library_from_its_own_start() -> None:
    points = skewed(150, 2)
    distances = cdist(points, points)
    for count in (3, 8, 20):
        rows = kmedoids._swap(distances, kmedoids.build(distances, count)).rows
        assert (
            distances[rows].min(axis=0).sum()
            <= 1.02 * library.fasterpam(distances, count, random_state=0, n_cpu=1).loss
        )


def alternate_by_hand(distances: np.ndarray, count: int) -> list[int]:
    """scikit-learn-extra's heuristic start and alternation, one cluster at a time."""
    rows = sorted(range(len(distances)), key=lambda i: (distances[i].sum(), i))[:count]
    while True:
        labels = distances[rows].argmin(axis=0)
        moved = list(rows)
        for own in range(count):
            inside = np.flatnonzero(labels == own)
            costs = distances[np.ix_(inside, inside)].sum(axis=1)
            if len(inside) and costs.min() < distances[rows[own], inside].sum() - 1e-12:
                moved[own] = int(inside[costs.argmin()])
        if moved == rows:
            return rows
        rows = moved


@pytest.mark.parametrize("count", [2, 5, 11])
def test_sklearn_extra_variant_follows_its_recipe(count: int) -> None:
    points = skewed(70, count)
    distances = cdist(points, points)
    found = kmedoids.alternate(distances, kmedoids.central_rows(distances)[:count])
    assert found.rows.tolist() == alternate_by_hand(distances, count)
    assert found.labels.tolist() == distances[found.rows].argmin(axis=0).tolist()


def test_sklearn_extra_variant_survives_identical_medoids() -> None:
    points = np.repeat([[0.0], [1.0], [5.0]], [6, 3, 3], axis=0)
    found = kmedoids.cluster(
        Geometry(points=points), np.random.default_rng(0), variant="sklearn_extra"
    )
    assert sorted(np.bincount(found.labels)) in ([3, 3, 6], [3, 9])


def test_medoids_are_members_of_their_cluster_and_centres_are_their_points() -> None:
    geometry = Geometry(points=skewed(50), known=np.arange(50) != 7)
    found = kmedoids.cluster(geometry, np.random.default_rng(0), count=4)
    medoids = found.details["medoids"]
    assert found.labels[medoids].tolist() == [0, 1, 2, 3]
    assert found.labels[7] == -1
    assert found.details["centers"].tolist() == geometry.points[medoids].tolist()  # type: ignore[index]


def test_pairwise_only_and_points_agree() -> None:
    points = skewed(60)
    by_points = kmedoids.cluster(Geometry(points=points), np.random.default_rng(0), scan="full")
    by_pairs = kmedoids.cluster(
        Geometry(pairwise=cdist(points, points)), np.random.default_rng(0), scan="full"
    )
    assert by_points.labels.tolist() == by_pairs.labels.tolist()
    assert "centers" not in by_pairs.details
    assert len(by_pairs.details["curve"]["counts"]) == 58


def best_of_all(distances: np.ndarray, count: int) -> float:
    """Every choice of medoids tried."""
    every = combinations(range(len(distances)), count)
    return min(float(distances[list(rows)].min(axis=0).sum()) for rows in every)


def test_restarts_find_what_exhaustive_search_finds() -> None:
    worse = {0: 0, 5: 0}
    for seed in range(40):
        points = skewed(12, seed, alpha=0.5)
        distances = cdist(points, points)
        for count in (2, 3, 4):
            best = best_of_all(distances, count)
            for restarts in worse:
                found = kmedoids.cluster(
                    Geometry(points=points),
                    np.random.default_rng(0),
                    count=count,
                    **({} if restarts else {"restarts": 0}),
                )
                total = distances[found.details["medoids"]].min(axis=0).sum()
                worse[restarts] += total > best * (1 + 1e-9)
    assert worse[0] >= 10  # from BUILD alone: local optima
    assert worse[5] <= 2  # the default


def test_restarts_repeat_and_end_at_300_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []
    swap = kmedoids._swap

    def counted(distances: np.ndarray, start: np.ndarray) -> Any:
        starts.append(len(distances))
        return swap(distances, start)

    monkeypatch.setattr(kmedoids, "_swap", counted)
    for clients in (300, 301):
        several = [
            kmedoids.cluster(hellinger(skewed(clients)), np.random.default_rng(seed), count=7)
            for seed in range(2)
        ]
        assert several[0].labels.tolist() == several[1].labels.tolist()
    assert (starts.count(300), starts.count(301)) == (12, 2)
    with pytest.raises(RecipeError, match="restarts"):
        kmedoids.cluster(hellinger(skewed(10)), np.random.default_rng(0), restarts=-1)


# ---------------------------------------------------------------- k-means


def test_seeds_are_distinct_prefixes_and_follow_the_weights() -> None:
    points = np.arange(6.0)[:, None]
    seeds = lloyd.seed_rows(points, np.ones(6), 6, 20, np.random.default_rng(0))
    assert all(sorted(row) == list(range(6)) for row in seeds.tolist())
    heavy = lloyd.seed_rows(
        points, np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0]), 1, 5, np.random.default_rng(0)
    )
    assert heavy.ravel().tolist() == [2] * 5


@pytest.mark.parametrize("count", [2, 6, 25])
def test_inertia_matches_scikit_learn(count: int) -> None:
    points = np.random.default_rng(count).normal(size=(120, 4))
    several = [
        kmeans.cluster(Geometry(points=points), np.random.default_rng(seed), count=count)
        for seed in range(5)
    ]
    wanted = [KMeans(count, n_init=10, random_state=seed).fit(points).inertia_ for seed in range(5)]
    assert np.mean([found.details["inertia"] for found in several]) <= 1.03 * np.mean(wanted)
    found = several[0]
    recomputed = ((points - found.details["centers"][found.labels]) ** 2).sum()
    assert recomputed == pytest.approx(found.details["inertia"])


def test_lloyd_from_one_start_equals_scikit_learn() -> None:
    points = np.random.default_rng(4).normal(size=(200, 3))
    start = points[[3, 50, 120, 199]]
    ours = lloyd.best_restart(points, np.ones(200), start[None])
    theirs = KMeans(4, init=start, n_init=1, tol=0).fit(points)
    assert ours.labels.tolist() == theirs.labels_.tolist()
    assert ours.centers == pytest.approx(theirs.cluster_centers_)


def test_weights_stand_for_repeated_points() -> None:
    points, repeats = np.random.default_rng(1).normal(size=(30, 2)), np.arange(30) % 3 + 1
    merged = lloyd.best_restart(points, repeats.astype(float), points[None, :4])
    spread = lloyd.best_restart(
        np.repeat(points, repeats, axis=0), np.ones(repeats.sum()), points[None, :4]
    )
    assert np.repeat(merged.labels, repeats).tolist() == spread.labels.tolist()
    assert merged.inertia == pytest.approx(spread.inertia)


def test_silhouette_at_or_below_zero_gives_one_cluster_only_if_allowed() -> None:
    # all pairs equally far: every split has silhouette 0
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    geometry = Geometry(points=corners)
    assert kmeans.cluster(geometry, np.random.default_rng(0)).k == 1
    assert kmeans.cluster(geometry, np.random.default_rng(0), allow_single=False).k == 2


def test_kmeans_wants_points_and_a_start() -> None:
    with pytest.raises(RecipeError, match="n_init"):
        kmeans.cluster(hellinger(skewed(10)), np.random.default_rng(0), n_init=0)
    with pytest.raises(RecipeError, match="only pairwise"):
        kmeans.cluster(Geometry(pairwise=np.ones((4, 4)) - np.eye(4)), np.random.default_rng(0))


def test_kmeans_scores_on_points_even_when_pairs_are_squared() -> None:
    points = skewed(40)
    squared = Geometry(points=points, pairwise=cdist(points, points, "sqeuclidean"))
    both = [
        kmeans.cluster(g, np.random.default_rng(0)).silhouette
        for g in (squared, Geometry(points=points))
    ]
    assert both[0] == both[1]


# --------------------------------------------- docs/methods.md 3.5: expected numbers of groups


@pytest.mark.parametrize("clients", [20, 50, 100])
def test_income_like_sorted_clients_form_three_groups(clients: int) -> None:
    counts = similarity_zero([104_882, 61_601], clients)
    assert len(np.unique(counts, axis=0)) == 3
    found = kmeans.cluster(psi(counts), np.random.default_rng(0))
    assert found.k == 3
    # everybody 1 but the lone border client 0
    assert found.silhouette == pytest.approx(1 - 1 / clients, abs=1e-6)


def test_ten_balanced_classes_sorted_form_ten_groups() -> None:
    found = kmeans.cluster(psi(similarity_zero([7000] * 10, 100)), np.random.default_rng(0))
    assert (found.k, found.silhouette) == (10, pytest.approx(1.0))


# ---------------------------------------------------------------- the border


@pytest.mark.parametrize("name", sorted(CLUSTERINGS))
def test_bad_geometry_is_refused(name: str) -> None:
    cluster, rng = CLUSTERINGS[name], np.random.default_rng(0)
    with pytest.raises(SignalError, match="NaN"):
        cluster(Geometry(points=np.array([[0.0], [np.nan], [1.0], [2.0]])), rng)
    if name != "kmeans":
        far = np.ones((4, 4)) - np.eye(4)
        with pytest.raises(SignalError, match="infinite"):
            cluster(Geometry(pairwise=np.where(far > 0, INF, 0)), rng)
        with pytest.raises(SignalError, match="symmetric"):
            cluster(Geometry(pairwise=far + np.triu(far)), rng)
        with pytest.raises(SignalError, match="shape"):
            cluster(Geometry(pairwise=far[:, :3]), rng)


@pytest.mark.parametrize(
    "options",
    [
        {"count": 31},
        {"count": -1},
        {"max_count": 1},
        {"exact_limit": -1},
        {"summary_size": 2},
        {"summary_size": 5001},
        {"scan": "full", "exact_limit": 10},
    ],
)
@pytest.mark.parametrize("name", ["kmeans", "kmedoids"])
def test_impossible_options_are_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="clustering"):
        CLUSTERINGS[name](hellinger(skewed(30)), np.random.default_rng(0), **options)


@pytest.mark.parametrize("name", ["kmeans", "kmedoids"])
@pytest.mark.parametrize("count", [1, 2, 29, 30])
def test_a_given_count_is_used(name: str, count: int) -> None:
    found = CLUSTERINGS[name](hellinger(skewed(30)), np.random.default_rng(0), count=count)
    assert found.k == count


@pytest.mark.parametrize("name", sorted(CLUSTERINGS))
def test_rounding_noise_of_identical_rows_is_not_structure(name: str) -> None:
    noise = np.random.default_rng(0).random((30, 30)) * 1.5e-8
    noise = (noise + noise.T) * (1 - np.eye(30)) / 2
    geometry = Geometry(pairwise=noise, points=np.zeros((30, 2)))
    assert CLUSTERINGS[name](geometry, np.random.default_rng(0)).k == 1
    if name != "kmeans":
        groups = np.arange(30) % 3
        found = CLUSTERINGS[name](
            Geometry(pairwise=noise + (groups[:, None] != groups)), np.random.default_rng(0)
        )
        assert found.labels.tolist() == groups.tolist()


def test_centres_of_many_points_are_refined_for_some_rounds_only():
    """Points on a line: centres that begin at one end take far more than 50 rounds to spread."""
    points, begin = np.linspace(0, 1, 20_000)[:, None], np.linspace(0, 1e-3, 8)[:, None]
    some = lloyd.refine_centers(points, begin)
    still = lloyd.refine_centers(points, begin, until_still=True)
    assert still.inertia < some.inertia
    assert lloyd.refine_centers(points, still.centers).inertia == pytest.approx(still.inertia)


def test_one_start_is_enough_for_kmeans():
    found = kmeans.cluster(hellinger(skewed(10)), np.random.default_rng(0), n_init=1)
    assert found.details["params"]["n_init"] == 1
