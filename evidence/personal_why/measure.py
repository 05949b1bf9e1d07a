"""How many clusters Clust-PSI-PFL finds, and whom a model was trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedskew.clustering.kmeans import cluster
from fedskew.distance.psi import psi_features
from fedskew.evidence.cells import Cell
from fedskew.experiment.world import dataset_of, shards_of
from fedskew.types import Geometry

SHOWN = range(2, 16)
SEARCHES = 20


def clusters(cell: Cell) -> dict[str, float]:
    """The number chosen, the silhouette at every number up to 15, and by how much it won."""
    curve = silhouettes(features(cell), 0)
    second, first = sorted(value for value in curve.values() if not np.isnan(value))[-2:]
    shown = {f"at_{number}": curve.get(number, np.nan) for number in SHOWN}
    return {"chosen": best_of(curve), "margin": first - second, **shown}


def searches(cell: Cell) -> dict[str, Any]:
    """What 20 whole searches from other random numbers choose; 0 starts: scikit-learn, once."""
    points, starts = features(cell), int(cell.options["n_init"])
    curves = (
        [silhouettes(points, number, starts) for number in range(SEARCHES)]
        if starts
        else [by_scikit_learn(points)]
    )
    chosen = [best_of(curve) for curve in curves]
    most, times = Counter(chosen).most_common(1)[0]
    labels = cluster(Geometry(points=points), np.random.default_rng(0)).labels
    same = np.unique(points.round(6), axis=0, return_counts=True)[1].max()
    return {
        "searches": len(chosen),
        "most": most,
        "times": times,
        "smallest": min(chosen),
        "largest": max(chosen),
        "sizes": sorted(np.bincount(labels).tolist(), reverse=True),
        "identical": int(same),
    }


def features(cell: Cell) -> Any:
    """(K, 1 + C) standardised PSI features of the cell's clients."""
    counts = shards_of(cell.recipe, dataset_of(cell.recipe), cell.seed).label_counts
    sizes = counts.sum(axis=1)
    return psi_features(counts / sizes[:, None], sizes.astype(float))


def silhouettes(points: Any, random: int, starts: int = 10) -> Mapping[int, float]:
    """Silhouette by number of clusters."""
    found = cluster(Geometry(points=points), np.random.default_rng(random), n_init=starts)
    curve = found.details["curve"]
    return dict(zip(curve["counts"].tolist(), curve["silhouettes"].tolist(), strict=True))


def by_scikit_learn(points: Any) -> Mapping[int, float]:
    """The same by scikit-learn, over all numbers of clusters."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    distinct = len(np.unique(points.round(6), axis=0))
    fitted = {
        number: KMeans(number, n_init=10, random_state=0).fit_predict(points)
        for number in range(2, min(distinct, len(points) - 1) + 1)
    }
    return {n: float(silhouette_score(points, labels)) for n, labels in fitted.items()}


def best_of(curve: Mapping[int, float]) -> int:
    """The smallest number of clusters at the maximum."""
    top = np.nanmax(list(curve.values()))
    return min(number for number, value in curve.items() if value >= top - 1e-9)


def trained_on(cell: Cell, result: Any) -> dict[str, float]:
    """The share of the last class (high incomes) among the examples that were trained on."""
    counts = shards_of(cell.recipe, dataset_of(cell.recipe), cell.seed).label_counts
    trained = np.array(result.clients["times_selected"]) @ counts
    return {"share_high": float(trained[-1] / trained.sum())}


def work(cell: Cell) -> float:
    """Expected seconds, for the time left."""
    clients = int(cell.recipe["data"]["clients"])
    return (clients / 50) ** 2 * 0.5 * max(1, int(cell.options.get("n_init", 1)))
