"""What OPTICS and DBSCAN share: try a grid of parameters, accept or refuse each answer, keep the
best, place the noise.

Acceptance (docs/methods.md 3.2): at least 2 clusters, at most K / 2, noise at most 30 %; the best
silhouette without noise wins, ties go to fewer noise clients, then to the smaller min_samples. If
nothing passes, noise up to 50 % is accepted; then k-medoids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedskew.clustering import kmedoids
from fedskew.clustering.count import TIE, check_sizes
from fedskew.clustering.noise import NoisePolicy, nearest_clusters, resolve_noise
from fedskew.clustering.outcome import conclude, one_cluster
from fedskew.clustering.sampling import sample_rows
from fedskew.clustering.silhouette import silhouette, subsampled_silhouette
from fedskew.clustering.space import Space, enter, is_uniform, nearest_row
from fedskew.types import Clustering, Floats, Geometry, Ints


@dataclass(frozen=True)
class Candidate:
    """One answer of the grid."""

    params: dict[str, Any]
    labels: Ints  # (n,) -1 = noise
    # (n,) how near a client outside the sample must be to belong to the same cluster; -inf = not a
    # core client
    reach: Floats


@dataclass(frozen=True)
class Rules:
    """The options both algorithms share, under the names of the recipe."""

    noise: NoisePolicy
    max_noise: float
    relaxed_noise: float
    sample_size: int
    exact_limit: int


@dataclass(frozen=True)
class Table:
    """The grid, judged: one row per candidate."""

    counts: Ints
    noise: Floats  # fraction
    silhouettes: Floats  # nan = not defined


Search = Callable[[Floats], Sequence[Candidate]]


def settle(
    algorithm: str, geometry: Geometry, rng: np.random.Generator, search: Search, rules: Rules
) -> Clustering:
    """Run a density clustering from geometry to finished labels."""
    space = enter(geometry)
    if is_uniform(space):
        return one_cluster(geometry, space, algorithm)
    check_sizes(
        f"clustering.{algorithm}", sample_size=rules.sample_size, exact_limit=rules.exact_limit
    )
    exact = space.size <= rules.exact_limit
    rows = np.arange(space.size) if exact else sample_rows(space, rules.sample_size, rng)
    distances = space.subset(rows).matrix()
    candidates = search(distances)
    table = judge(distances, candidates)
    best, threshold = pick(candidates, table, len(rows), (rules.max_noise, rules.relaxed_noise))
    if best is None:
        return _fall_back(algorithm, geometry, rng, table, rules)
    details = _details(algorithm, candidates[best], table, threshold, rules, len(rows))
    if exact:
        return _exact(
            geometry,
            space,
            candidates[best].labels,
            distances,
            rules,
            details,
            float(table.silhouettes[best]),
        )
    return _spread(geometry, space, rows, candidates[best], distances, rng, rules, details)


def judge(distances: Floats, candidates: Sequence[Candidate]) -> Table:
    """Clusters, noise and silhouette of every candidate; equal labels are scored once."""
    scores: dict[bytes, float] = {}
    for candidate in candidates:
        key = candidate.labels.tobytes()
        if key not in scores:
            score = silhouette(distances, candidate.labels)
            scores[key] = np.nan if score is None else score
    return Table(
        np.array([candidate.labels.max(initial=-1) + 1 for candidate in candidates], np.int64),
        np.array([np.mean(candidate.labels < 0) for candidate in candidates], np.float64),
        np.array([scores[candidate.labels.tobytes()] for candidate in candidates], np.float64),
    )


def pick(
    candidates: Sequence[Candidate], table: Table, size: int, thresholds: tuple[float, ...]
) -> tuple[int | None, float | None]:
    """(the best candidate's position, the noise threshold it passed), or (None, None)."""
    for threshold in thresholds:
        good = (
            (table.counts >= 2)
            & (table.counts <= size / 2)
            & (table.noise <= threshold)
            & ~np.isnan(table.silhouettes)
        )
        if good.any():
            top = table.silhouettes[good].max()
            tied = np.flatnonzero(good & (table.silhouettes >= top - TIE))
            return min(
                tied.tolist(),
                key=lambda i: (table.noise[i], candidates[i].params["min_samples"], i),
            ), threshold
    return None, None


def _details(
    algorithm: str, best: Candidate, table: Table, threshold: float | None, rules: Rules, size: int
) -> dict[str, Any]:
    return {
        "algorithm": algorithm,
        "params": {**best.params, "noise": rules.noise, "scanned_clients": size},
        "curve": _curve(table),
        "thresholds": {"max_noise": threshold, "min_clusters": 2, "max_clusters": size // 2},
    }


def _curve(table: Table) -> dict[str, Any]:
    return {
        "counts": table.counts,
        "silhouettes": table.silhouettes,
        "noise_fractions": table.noise,
    }


def _exact(
    geometry: Geometry,
    space: Space,
    labels: Ints,
    distances: Floats,
    rules: Rules,
    details: dict[str, Any],
    score: float,
) -> Clustering:
    noisy = labels < 0
    resolved = resolve_noise(labels, rules.noise, nearest_clusters(distances, labels))
    kind = {"num_noise": int(noisy.sum()), "silhouette_kind": "exact"}
    return conclude(
        geometry,
        space,
        resolved,
        details | kind,
        silhouette=score,
        noise_fraction=float(noisy.mean()),
    )


def _spread(
    geometry: Geometry,
    space: Space,
    rows: Ints,
    found: Candidate,
    distances: Floats,
    rng: np.random.Generator,
    rules: Rules,
    details: dict[str, Any],
) -> Clustering:
    """Clients outside the sample join the nearest core client of the sample; beyond its reach
    they are noise.
    """
    cores = np.flatnonzero((found.labels >= 0) & (found.reach > -np.inf))
    position, far = nearest_row(space, rows[cores])
    nearest = found.labels[cores[position]]
    labels = np.where(far <= found.reach[cores[position]], nearest, -1)
    labels[rows] = found.labels
    nearest[rows] = nearest_clusters(distances, found.labels)
    noisy = labels < 0
    score = subsampled_silhouette(space.distances, labels, rng, size=rules.sample_size)
    kind = {"num_noise": int(noisy.sum()), "silhouette_kind": "subsampled"}
    resolved = resolve_noise(labels, rules.noise, nearest)
    return conclude(
        geometry,
        space,
        resolved,
        details | kind,
        silhouette=score,
        noise_fraction=float(noisy.mean()),
        exact=False,
    )


def _fall_back(
    algorithm: str, geometry: Geometry, rng: np.random.Generator, table: Table, rules: Rules
) -> Clustering:
    """Nothing was accepted: k-medoids, and the details say so."""
    found = kmedoids.cluster(
        geometry, rng, sample_size=rules.sample_size, exact_limit=rules.exact_limit
    )
    details = {
        **found.details,
        "algorithm": algorithm,
        "fallback": "kmedoids",
        "rejected": _curve(table),
    }
    return Clustering(found.labels, found.silhouette, found.noise_fraction, found.exact, details)
