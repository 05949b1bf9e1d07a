from __future__ import annotations

import warnings
from inspect import signature
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.cluster import OPTICS, cluster_optics_xi, compute_optics_graph

from fedskew.clustering import dbscan, density, kmedoids, optics, walk
from fedskew.clustering.density import Candidate, Table
from fedskew.errors import RecipeError
from fedskew.types import Geometry

INF = float("inf")


def skewed(clients: int, seed: int = 0, classes: int = 6, alpha: float = 0.15) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(classes, alpha), clients)


def hellinger(rows: np.ndarray) -> Geometry:
    return Geometry(points=np.sqrt(rows / 2), name="hellinger")


# ---------------------------------------------------------------- optics


@pytest.mark.parametrize("max_eps", [0.2, 0.5, INF])
@pytest.mark.parametrize("min_samples", [2, 5])
def test_ordering_equals_scikit_learn(min_samples: int, max_eps: float) -> None:
    rows = np.vstack([skewed(50, 1), np.eye(6)[[0, 0, 0, 1, 1]]])  # with identical clients
    distances = cdist(np.sqrt(rows), np.sqrt(rows))
    rounded = np.around(distances, 15)
    ours = walk.order_clients(rounded, walk.core_distances(rounded, [min_samples])[0], max_eps)
    rest: dict[str, Any] = {
        "p": 2,
        "metric_params": None,
        "algorithm": "auto",
        "leaf_size": 30,
        "n_jobs": None,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "all reachability values are inf" for the smallest radius
        order, core, reach, before = compute_optics_graph(
            distances, min_samples=min_samples, max_eps=max_eps, metric="precomputed", **rest
        )
    assert ours.order.tolist() == order.tolist()
    assert ours.core_distances.tolist() == core.tolist()
    assert ours.reachability.tolist() == reach.tolist()
    assert ours.predecessor.tolist() == before.tolist()
    with np.errstate(divide="ignore"):
        wanted, _ = cluster_optics_xi(
            reachability=reach, predecessor=before, ordering=order, min_samples=min_samples, xi=0.05
        )
    assert optics.extract_xi(ours, min_samples, 0.05).tolist() == wanted.tolist()


def test_a_grid_of_one_equals_the_scikit_learn_estimator() -> None:
    geometry = hellinger(skewed(60))
    found = optics.cluster(
        geometry,
        np.random.default_rng(0),
        min_samples=(4,),
        max_eps=(INF,),
        xi=(0.05,),
        noise="drop",
        max_noise=1.0,
    )
    wanted = (
        OPTICS(min_samples=4, metric="precomputed", xi=0.05)
        .fit(cdist(geometry.points, geometry.points))
        .labels_
    )
    assert ((found.labels < 0) == (wanted < 0)).all()
    assert found.noise_fraction == pytest.approx(np.mean(wanted < 0))
    assert found.details["num_noise"] == (wanted < 0).sum()
    assert found.k == wanted.max() + 1


def test_min_samples_above_a_quarter_of_the_clients_are_not_tried() -> None:
    found = optics.cluster(hellinger(skewed(40)), np.random.default_rng(0))
    # 2, 3, 4, 5, 8, 10
    assert len((found.details.get("rejected") or found.details["curve"])["counts"]) == 6 * 5 * 4


def test_pick_follows_acceptance_then_score_then_noise_then_min_samples() -> None:
    def judged(rows: list[tuple[int, float, float, int]]) -> tuple[int | None, float | None]:
        candidates = [Candidate({"min_samples": row[3]}, np.zeros(1, np.int64)) for row in rows]
        counts, noise, scores = (np.array([row[i] for row in rows]) for i in range(3))
        return density.pick(candidates, Table(counts, noise, scores), 20, (0.3, 0.5))

    assert judged([(1, 0.0, 0.9, 2), (11, 0.0, 0.9, 2), (3, 0.31, 0.9, 2), (3, 0.3, 0.2, 2)]) == (
        3,
        0.3,
    )
    assert judged([(3, 0.2, 0.7, 2), (3, 0.1, 0.7 + 1e-12, 3), (3, 0.1, 0.7, 2)]) == (2, 0.3)
    assert judged([(3, 0.2, 0.7, 2), (3, 0.1, 0.7, 3)]) == (1, 0.3), "noise before min_samples"
    assert judged([(3, 0.1, 0.7, 3), (3, 0.1, 0.7, 2)]) == (1, 0.3), "then min_samples"
    assert judged([(3, 0.1, 0.7, 2), (4, 0.1, 0.7, 2)]) == (0, 0.3), "then the first of the grid"
    assert judged([(3, 0.0, 0.7, 2), (3, 0.2, 0.7 + 1e-8, 3)]) == (1, 0.3), "that is no tie"
    assert judged([(2, 0.0, 0.1, 2), (10, 0.0, 0.9, 2)]) == (1, 0.3), "half of 20 is allowed"
    assert judged([(3, 0.45, 0.7, 2), (1, 0.0, 0.9, 2)]) == (0, 0.5)
    assert judged([(3, 0.6, 0.7, 2), (3, 0.0, np.nan, 2)]) == (None, None)


def test_nothing_accepted_falls_back_to_kmedoids() -> None:
    geometry = hellinger(skewed(40))
    found = optics.cluster(
        geometry, np.random.default_rng(0), max_noise=0.0, relaxed_noise=0.0, max_eps=(1e-6,)
    )
    wanted = kmedoids.cluster(geometry, np.random.default_rng(0))
    assert found.details["fallback"] == "kmedoids"
    assert found.labels.tolist() == wanted.labels.tolist()


@pytest.mark.parametrize(
    "options", [{"xi": (1.0,)}, {"min_samples": (1,)}, {"max_eps": ()}, {"max_eps": (0.0,)}]
)
def test_optics_refuses_a_bad_grid(options: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="grid"):
        optics.cluster(hellinger(skewed(20)), np.random.default_rng(0), **options)


# ---------------------------------------------------------------- dbscan


def test_dbscan_radii_are_quantiles_and_identical_clients_are_found() -> None:
    distances = cdist(*[np.arange(21.0)[:, None]] * 2)
    upper = distances[np.triu_indices(21, 1)]
    assert dbscan.radii(distances) == pytest.approx(
        np.unique(np.quantile(upper, np.arange(0.05, 0.51, 0.05)))
    )
    found = dbscan.cluster(hellinger(np.eye(10)[np.arange(100) % 10]), np.random.default_rng(0))
    assert (found.k, found.silhouette) == (10, 1.0)


def test_dbscan_takes_the_radius_it_is_given() -> None:
    points = np.array([[0.0], [0.2], [0.4], [1.0], [1.2], [9.0]])
    found = dbscan.cluster(
        Geometry(points=points),
        np.random.default_rng(0),
        eps=(0.25,),
        min_samples=(2,),
        max_noise=1.0,
        noise="singletons",
    )
    assert found.labels.tolist() == [0, 0, 0, 1, 1, 2]
    assert found.details["params"]["eps"] == 0.25
    with pytest.raises(RecipeError, match="grid"):
        dbscan.cluster(Geometry(points=points), np.random.default_rng(0), eps=(0.0,))


def test_the_grid_of_optics_is_that_of_methods():
    defaults = {p.name: p.default for p in signature(optics.cluster).parameters.values()}
    assert defaults["max_eps"] == (0.2, 0.4, 0.6, 0.8, float("inf"))
    assert defaults["min_samples"] == (2, 3, 4, 5, 8, 10, 15, 20)
    assert defaults["xi"] == (0.01, 0.05, 0.1, 0.2)
