"""DBSCAN: a client with enough neighbours within a radius starts a cluster that grows through such
clients; loners are noise.

Ester et al. 1996; scikit-learn's ``dbscan`` on the distance matrix. The radius comes from ten
quantiles (5 % to 50 %) of the distances between different clients, min_samples from {2, 3, 5};
acceptance, scoring and noise as for OPTICS (docs/methods.md 3.3).

Differs from the literature:

- A grid of radii where users pick one by eye.
- A quantile of 0 (many identical clients) becomes the smallest radius that still joins them.
- HACCS's variant for P(y) is ``eps=(0.25,)``, ``min_samples=(2,)``, ``max_noise=1.0``,
  ``noise="singletons"`` on Euclidean distances of the label proportions.
- Above 5,000 clients the quantiles are those of cells of near-equal clients, and the clusters are
  read off one walk of OPTICS per min_samples: the same clusters, without a matrix. Above
  ``exact_limit`` cells take the place of clients (docs/methods.md 3.6).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy

from fedskew.clustering.density import Candidate, Rules, settle
from fedskew.clustering.labels import relabel
from fedskew.clustering.noise import NoisePolicy
from fedskew.clustering.space import ZERO_DISTANCE, chunks
from fedskew.clustering.summary import summarise
from fedskew.clustering.walk import Distances, Ordering, Rows, core_distances, order_clients
from fedskew.errors import RecipeError
from fedskew.types import Clustering, Floats, Geometry, Ints

EXACT_LIMIT = 50_000  # clients; one walk per min_samples, K^2 distances each
RADII_CELLS = 1_000  # their distances give the quantiles above 5,000 clients
_QUANTILES = np.linspace(0.05, 0.5, 10)


def cluster(
    geometry: Geometry,
    rng: np.random.Generator,
    *,
    eps: tuple[float, ...] = (),
    min_samples: tuple[int, ...] = (2, 3, 5),
    noise: NoisePolicy = "nearest",
    max_noise: float = 0.3,
    relaxed_noise: float = 0.5,
    exact_limit: int = EXACT_LIMIT,
    summary_size: int = 2500,
) -> Clustering:
    """Group clients by density. ``eps`` empty: ten quantiles of the distances.

    >>> points = np.concatenate([np.linspace(0, 0.1, 10), np.linspace(5, 5.1, 10)])[:, None]
    >>> found = cluster(Geometry(points=points), np.random.default_rng(0))
    >>> found.k, found.noise_fraction
    (2, 0.0)
    """
    if min(min_samples, default=0) < 1 or min(eps, default=1.0) <= 0:
        raise RecipeError(
            "clustering.dbscan", "a grid value is out of range", "min_samples >= 1, eps > 0"
        )

    def search(distances: Distances) -> list[Candidate]:
        return list(_search(distances, eps, min_samples))

    return settle(
        "dbscan",
        geometry,
        rng,
        search,
        Rules(noise, max_noise, relaxed_noise, summary_size, exact_limit),
    )


def radii(distances: Floats) -> tuple[float, ...]:
    """Ten quantiles of the off-diagonal distances, ascending, without repetition, never 0.

    >>> radii(np.zeros((3, 3)))
    (2.5e-08,)
    >>> len(radii(np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]])))
    10
    """
    upper = distances[np.triu_indices(len(distances), 1)]
    # every distance below ZERO_DISTANCE is exactly 0 here, so half of it joins identical clients
    # and nobody else
    return tuple(
        float(q) for q in np.unique(np.maximum(np.quantile(upper, _QUANTILES), ZERO_DISTANCE / 2))
    )


def _search(
    distances: Distances, eps: tuple[float, ...], min_samples: tuple[int, ...]
) -> Iterator[Candidate]:
    if isinstance(distances, Rows):
        yield from _search_rows(distances, eps, min_samples)
        return
    # importing scikit-learn takes a second: not for every command
    from sklearn.cluster import dbscan

    for least in min_samples:
        for radius in eps or radii(distances):
            _, labels = dbscan(distances, eps=radius, min_samples=least, metric="precomputed")
            yield Candidate({"min_samples": least, "eps": radius}, labels.astype(np.int64))


def _search_rows(
    rows: Rows, eps: tuple[float, ...], min_samples: tuple[int, ...]
) -> Iterator[Candidate]:
    """The same without a matrix: one walk of OPTICS holds the clusters of every smaller radius."""
    tried = eps or radii(summarise(rows.points, RADII_CELLS).between_clients())
    for least, core in zip(min_samples, core_distances(rows, min_samples), strict=True):
        walk = order_clients(rows, core, max(tried))
        for radius in tried:
            labels = labels_at(walk, core, radius, rows.points)
            yield Candidate({"min_samples": least, "eps": radius}, labels)


def labels_at(walk: Ordering, core: Floats, radius: float, points: Floats) -> Ints:
    """DBSCAN's labels at one radius from a walk with at least this ``max_eps``.

    Core clients of one cluster follow each other in the walk without a step longer than the radius.
    Other clients join the first cluster, counted by the smallest core client, that has a core
    client within the radius.
    """
    cores = core <= radius
    starts = (walk.reachability > radius) & cores
    segment = np.empty(len(core), np.int64)
    segment[walk.order] = np.cumsum(starts[walk.order]) - 1
    labels, _ = relabel(np.where(cores, segment, -1))
    inside, rest = np.flatnonzero(cores), np.flatnonzero(~cores)
    inside = inside[np.argsort(labels[inside], kind="stable")]
    for part in chunks(len(rest), len(inside)) if len(inside) else ():
        near = scipy.spatial.distance.cdist(points[inside], points[rest[part]]) <= radius
        labels[rest[part]] = np.where(near.any(axis=0), labels[inside[near.argmax(axis=0)]], -1)
    return labels
