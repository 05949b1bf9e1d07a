"""OPTICS: walk through the clients from near to nearer, and read clusters off the valleys of that
walk; loners stay noise.

Paper 000 (FedLECC), its clustering step: OPTICS on pairwise Hellinger distances; no parameters
given. Ankerst et al. 1999 (ordering, and xi extraction in figure 19); the extraction is
scikit-learn's ``cluster_optics_xi``.

Differs from the paper:

- The parameters come from a grid (docs/methods.md 3.2), wider than that of the authors' public
  sibling code, which accepts nothing at 250 or 300 clients. For theirs: ``min_samples=(2, 3)``,
  ``max_eps=(0.2, 0.8)``, ``xi=(0.05, 0.8)``.
- The ordering depends on (min_samples, max_eps) only and is shared by all xi. It is written out in
  :mod:`fedskew.clustering.walk` and equals scikit-learn's: 2 ms each at 300 clients, against 0.4
  to 1 s, because neighbours need no new search at every step.
- Noise is placed by a policy, ``nearest`` by default.
- Above ``exact_limit`` cells of near-equal clients take the place of clients (docs/methods.md 3.6).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedskew.clustering.density import Candidate, Rules, settle
from fedskew.clustering.noise import NoisePolicy
from fedskew.clustering.walk import (
    Distances,
    Ordering,
    Rows,
    core_distances,
    order_clients,
    rounded,
)
from fedskew.errors import RecipeError
from fedskew.types import Clustering, Geometry, Ints

EXACT_LIMIT = 50_000  # clients; eight walks through K^2 / 2 distances, and shorter ones


def cluster(
    geometry: Geometry,
    rng: np.random.Generator,
    *,
    min_samples: tuple[int, ...] = (2, 3, 4, 5, 8, 10, 15, 20),
    max_eps: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, float("inf")),
    xi: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2),
    noise: NoisePolicy = "nearest",
    max_noise: float = 0.3,
    relaxed_noise: float = 0.5,
    exact_limit: int = EXACT_LIMIT,
    summary_size: int = 2500,
) -> Clustering:
    """Group clients by density. Values of ``min_samples`` above K / 4 are not tried.

    >>> points = np.concatenate([np.linspace(0, 0.1, 10), np.linspace(5, 5.1, 10)])[:, None]
    >>> found = cluster(Geometry(points=points), np.random.default_rng(0))
    >>> found.k, found.noise_fraction, found.members(1).min()
    (2, 0.0, np.int64(10))
    """
    if (
        not all(0 < value < 1 for value in xi)
        or min(min_samples, default=0) < 2
        or not max_eps
        or min(max_eps) <= 0
    ):
        raise RecipeError(
            "clustering.optics",
            "a grid value is out of range",
            "xi in (0, 1), min_samples >= 2, max_eps > 0",
        )

    def search(distances: Distances) -> list[Candidate]:
        return list(_search(distances, min_samples, max_eps, xi))

    return settle(
        "optics",
        geometry,
        rng,
        search,
        Rules(noise, max_noise, relaxed_noise, summary_size, exact_limit),
    )


def _search(
    distances: Distances,
    min_samples: tuple[int, ...],
    max_eps: tuple[float, ...],
    xi: tuple[float, ...],
) -> Iterator[Candidate]:
    tried = [value for value in min_samples if value <= len(distances) / 4]
    if not isinstance(distances, Rows):
        distances = rounded(distances)
    for least, core in zip(tried, core_distances(distances, tried), strict=True):
        walks: dict[float, Ordering] = {}
        wider = None
        for radius in sorted(set(max_eps), reverse=True):
            wider = walks[radius] = order_clients(distances, core, radius, wider)
        for radius in max_eps:
            for steepness in xi:
                params = {"min_samples": least, "max_eps": radius, "xi": steepness}
                yield Candidate(params, extract_xi(walks[radius], least, steepness))


def extract_xi(walk: Ordering, min_samples: int, xi: float) -> Ints:
    """Labels (n,) from the steep edges of the reachability plot, -1 = noise."""
    # importing scikit-learn takes a second: not for every command
    from sklearn.cluster import cluster_optics_xi

    if np.isinf(walk.reachability).all():
        return np.full(len(walk.order), -1, np.int64)
    # identical clients have reachability 0; a step from 0 is as steep as can be
    with np.errstate(divide="ignore"):
        labels, _ = cluster_optics_xi(
            reachability=walk.reachability,
            predecessor=walk.predecessor,
            ordering=walk.order,
            min_samples=min_samples,
            xi=xi,
        )
    return np.asarray(labels, np.int64)
