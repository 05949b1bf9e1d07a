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
from fedskew.clustering.field import Field, lay_out
from fedskew.clustering.noise import NoisePolicy, resolve_noise
from fedskew.clustering.outcome import conclude, one_cluster
from fedskew.clustering.silhouette import is_defined
from fedskew.clustering.space import Space, enter, is_uniform
from fedskew.clustering.walk import Distances
from fedskew.types import Bools, Clustering, Floats, Geometry, Ints


@dataclass(frozen=True)
class Candidate:
    """One answer of the grid."""

    params: dict[str, Any]
    labels: Ints  # (n,) -1 = noise


@dataclass(frozen=True)
class Rules:
    """The options both algorithms share, under the names of the recipe."""

    noise: NoisePolicy
    max_noise: float
    relaxed_noise: float
    summary_size: int
    exact_limit: int


@dataclass(frozen=True)
class Table:
    """The grid, judged: one row per candidate."""

    counts: Ints
    noise: Floats  # fraction of the clients
    silhouettes: Floats  # nan = not defined, or not computed because it cannot win


Search = Callable[[Distances], Sequence[Candidate]]


def settle(
    algorithm: str, geometry: Geometry, rng: np.random.Generator, search: Search, rules: Rules
) -> Clustering:
    """Run a density clustering from geometry to finished labels."""
    space = enter(geometry)
    if is_uniform(space):
        return one_cluster(geometry, space, algorithm)
    sizes = {"summary_size": rules.summary_size, "exact_limit": rules.exact_limit}
    check_sizes(f"clustering.{algorithm}", **sizes)
    field = lay_out(space, **sizes)
    candidates = search(field.distances)
    thresholds = (rules.max_noise, rules.relaxed_noise)
    table = judge(field, candidates, thresholds)
    best, threshold = pick(candidates, table, field.size, thresholds)
    if best is None:
        return _fall_back(algorithm, geometry, rng, table, rules)
    details = _details(algorithm, candidates[best], table, threshold, rules, field)
    return _finish(geometry, space, field, candidates[best].labels, table, best, rules, details)


def judge(field: Field, candidates: Sequence[Candidate], thresholds: tuple[float, ...]) -> Table:
    """Clusters, noise and silhouette of every candidate; equal labels are scored once."""
    noise = [field.weights[candidate.labels < 0].sum() for candidate in candidates]
    table = Table(
        np.array([candidate.labels.max(initial=-1) + 1 for candidate in candidates], np.int64),
        np.array(noise, np.float64) / field.size,
        np.full(len(candidates), np.nan),
    )
    wanted = np.ones(len(candidates), np.bool_)
    if not field.scores_everything:
        defined = np.array([is_defined(candidate.labels) for candidate in candidates], np.bool_)
        accepted = [defined & acceptable(table, field.size, most) for most in thresholds]
        wanted = next((mask for mask in accepted if mask.any()), defined & False)
    different = {candidates[i].labels.tobytes(): i for i in np.flatnonzero(wanted)[::-1].tolist()}
    scores = field.scores([candidates[i].labels for i in different.values()]) if different else []
    known = {key: np.nan if s is None else s for key, s in zip(different, scores, strict=True)}
    table.silhouettes[wanted] = [
        known[candidates[i].labels.tobytes()] for i in np.flatnonzero(wanted).tolist()
    ]
    return table


def acceptable(table: Table, size: int, max_noise: float) -> Bools:
    """Which candidates have a number of clusters and a share of noise that will do."""
    few = (table.counts >= 2) & (table.counts <= size / 2)
    return np.asarray(few & (table.noise <= max_noise))


def pick(
    candidates: Sequence[Candidate], table: Table, size: int, thresholds: tuple[float, ...]
) -> tuple[int | None, float | None]:
    """(the best candidate's position, the noise threshold it passed), or (None, None)."""
    for threshold in thresholds:
        good = acceptable(table, size, threshold) & ~np.isnan(table.silhouettes)
        if good.any():
            top = table.silhouettes[good].max()
            tied = np.flatnonzero(good & (table.silhouettes >= top - TIE))
            return min(
                tied.tolist(),
                key=lambda i: (table.noise[i], candidates[i].params["min_samples"], i),
            ), threshold
    return None, None


def _details(
    algorithm: str,
    best: Candidate,
    table: Table,
    threshold: float | None,
    rules: Rules,
    field: Field,
) -> dict[str, Any]:
    return {
        "algorithm": algorithm,
        "params": {**best.params, "noise": rules.noise, **field.scanned},
        "curve": _curve(table),
        "thresholds": {"max_noise": threshold, "min_clusters": 2, "max_clusters": field.size // 2},
    }


def _curve(table: Table) -> dict[str, Any]:
    return {
        "counts": table.counts,
        "silhouettes": table.silhouettes,
        "noise_fractions": table.noise,
    }


def _finish(
    geometry: Geometry,
    space: Space,
    field: Field,
    labels: Ints,
    table: Table,
    best: int,
    rules: Rules,
    details: dict[str, Any],
) -> Clustering:
    """Place the noise, and give every client the label of its row."""
    noisy = labels[field.own] < 0
    placed = resolve_noise(labels, "nearest", field.nearest(labels)) if noisy.any() else labels
    kind = {
        "num_noise": int(noisy.sum()),
        "silhouette_kind": "exact" if field.exact else "cells",
        "silhouette_of_all": field.scores([placed])[0],
    }
    # the policy works on clients: noise in one cell is many singletons
    resolved = resolve_noise(labels[field.own], rules.noise, placed[field.own])
    return conclude(
        geometry,
        space,
        resolved,
        details | kind,
        silhouette=float(table.silhouettes[best]),
        noise_fraction=float(noisy.mean()),
        exact=field.exact,
    )


def _fall_back(
    algorithm: str, geometry: Geometry, rng: np.random.Generator, table: Table, rules: Rules
) -> Clustering:
    """Nothing was accepted: k-medoids, and the details say so."""
    found = kmedoids.cluster(
        geometry, rng, summary_size=rules.summary_size, exact_limit=rules.exact_limit
    )
    details = {
        **found.details,
        "algorithm": algorithm,
        "fallback": "kmedoids",
        "rejected": _curve(table),
    }
    return Clustering(found.labels, found.silhouette, found.noise_fraction, found.exact, details)
