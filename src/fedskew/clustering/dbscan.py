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
- Above ``exact_limit`` the grid runs on a sample and the others join the nearest core client.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedskew.clustering.density import Candidate, Rules, settle
from fedskew.clustering.noise import NoisePolicy
from fedskew.clustering.space import ZERO_DISTANCE
from fedskew.errors import RecipeError
from fedskew.types import Clustering, Floats, Geometry, Ints

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
    sample_size: int = 2000,
    exact_limit: int = 5000,
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

    def search(distances: Floats) -> list[Candidate]:
        return list(_search(distances, eps, min_samples))

    return settle(
        "dbscan",
        geometry,
        rng,
        search,
        Rules(noise, max_noise, relaxed_noise, sample_size, exact_limit),
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
    distances: Floats, eps: tuple[float, ...], min_samples: tuple[int, ...]
) -> Iterator[Candidate]:
    # importing scikit-learn takes a second: not for every command
    from sklearn.cluster import dbscan

    for least in min_samples:
        for radius in eps or radii(distances):
            cores, labels = dbscan(distances, eps=radius, min_samples=least, metric="precomputed")
            yield Candidate(
                {"min_samples": least, "eps": radius},
                labels.astype(np.int64),
                _reach(cores, radius, len(labels)),
            )


def _reach(cores: Ints, radius: float, size: int) -> Floats:
    reach = np.full(size, -np.inf)
    reach[cores] = radius
    return reach
