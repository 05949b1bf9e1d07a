"""k-medoids: pick c clients as representatives so that everybody is near one, and let the
silhouette choose c.

Paper 002 (similarity study), section on clustering: scikit-learn-extra ``KMedoids`` and the
silhouette over c in [2, N - 1]. PAM: Kaufman & Rousseeuw 1990; FasterPAM: Schubert & Rousseeuw
2021, Information Systems 101, algorithm 3.

Differs from the paper:

- ``variant="fasterpam"`` (default) is PAM quality: BUILD, then eager swaps. The paper's library
  starts from the c most central clients and only alternates (``variant="sklearn_extra"``), which is
  poor on well separated groups (docs/methods.md 3.4).
- Above 300 clients c is looked for on a grid. Above 5,000 it is looked for on cells of near-equal
  clients; for the best few c everybody then joins the nearest medoid and each medoid moves to the
  best member until nothing changes, and exact silhouettes decide (above ``exact_limit``: everybody
  joins the nearest medoid).
- ``restarts``: to 300 clients the swaps also start from five drawn sets of medoids and the lowest
  total distance wins; PAM starts once.
- Medoids of identical clients leave empty clusters; the number of distinct labels counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from fedskew.clustering.count import (
    EXACT_LIMIT,
    TIE,
    Curve,
    Scan,
    check_options,
    counts_to_try,
    first_best,
    scan_counts,
)
from fedskew.clustering.many_medoids import Medoids, settle_medoids, spread_medoids
from fedskew.clustering.outcome import conclude, one_cluster
from fedskew.clustering.silhouette import silhouette, silhouettes_of_points
from fedskew.clustering.space import PAIRWISE_LIMIT, Space, enter, is_uniform, nearest_point
from fedskew.clustering.summary import summarise
from fedskew.errors import RecipeError
from fedskew.types import Clustering, Floats, Geometry, Ints

Variant = Literal["fasterpam", "sklearn_extra"]
RESTART_LIMIT = 300  # clients; above, other starts gain less than 0.5 %, docs/methods.md 3.4
_MAX_ITERATIONS = 300  # scikit-learn-extra's default
_LAZY_BATCH = 32


def cluster(
    geometry: Geometry,
    rng: np.random.Generator,
    *,
    count: int = 0,
    scan: Scan = "auto",
    max_count: int = 0,
    variant: Variant = "fasterpam",
    restarts: int = 5,
    exact_limit: int = EXACT_LIMIT,
    summary_size: int = 2500,
) -> Clustering:
    """Group clients around medoids. ``count`` 0: the number with the best silhouette, ties to the
    smallest.

    >>> points = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
    >>> found = cluster(Geometry(points=points), np.random.default_rng(0))
    >>> found.labels, found.details["medoids"]
    (array([0, 0, 0, 1, 1, 1]), array([1, 4]))
    """
    space = enter(geometry)
    if is_uniform(space) or count == 1:
        return one_cluster(geometry, space, "kmedoids")
    check_options(
        "clustering.kmedoids",
        space.size,
        count=count,
        scan=scan,
        max_count=max_count,
        summary_size=summary_size,
        exact_limit=exact_limit,
    )
    if restarts < 0:
        raise RecipeError("clustering.kmedoids", f"restarts {restarts}", "Choose 0 or more")
    wanted = _Wanted(count, scan, max_count, variant, restarts)
    if space.pairwise is not None or space.size <= min(exact_limit, PAIRWISE_LIMIT):
        exact = True
        curve, best, kind = _on_clients(space, wanted)
    else:
        exact = space.size <= exact_limit
        curve, best, kind = _on_cells(space, wanted, summary_size, exact)
    found, score = best
    params = {"count": len(found.rows), "variant": variant, "scan": scan, **kind.pop("params")}
    details = {
        "algorithm": "kmedoids",
        "params": params,
        "curve": curve.as_details(),
        "num_noise": 0,
    }
    return conclude(
        geometry,
        space,
        found.labels,
        details | kind,
        silhouette=score,
        exact=exact,
        medoids=found.rows,
    )


@dataclass(frozen=True)
class _Wanted:
    """The options about the medoids."""

    count: int
    scan: Scan
    max_count: int
    variant: Variant
    restarts: int


_Fit = Callable[[int], Medoids]
_Answer = tuple[Curve, tuple[Medoids, float | None], dict[str, Any]]


def _on_clients(space: Space, wanted: _Wanted) -> _Answer:
    """Few enough clients for their distance matrix."""
    distances = space.matrix()
    curve, fit, count = scan_medoids(
        distances,
        lambda found: silhouette(distances, found.labels),
        space.size,
        space.num_features,
        wanted,
    )
    found = fit(count)
    kind = {"silhouette_kind": "exact", "params": {"scanned_clients": space.size}}
    return curve, (found, silhouette(distances, found.labels)), kind


def _on_cells(space: Space, wanted: _Wanted, most: int, exact: bool) -> _Answer:
    """Cells choose the few best counts, everybody decides between them."""
    points = space.need_points("kmedoids")
    cells = summarise(points, most)
    between = cells.between_clients()

    def score(medoids: Floats) -> float | None:
        return silhouette(between, nearest_point(cells.picked, medoids))

    curve, fit, count = scan_medoids(
        cells.between_means(),
        lambda found: score(cells.means[found.rows]),
        space.size,
        space.num_features,
        wanted,
    )
    params = {"scanned_cells": len(cells.means)}
    if not exact:
        found = spread_medoids(points, cells, fit(count).rows)
        return (
            curve,
            (found, score(points[found.rows])),
            {"silhouette_kind": "cells", "params": params},
        )
    counts = [count] if wanted.count else curve.finalists or [count]
    fits = [settle_medoids(points, cells, fit(c).rows) for c in counts]
    scores = silhouettes_of_points(points, [each.labels for each in fits])
    best = first_best(scores)
    finals = dict(zip(counts, scores, strict=True))
    kind = {"silhouette_kind": "exact", "finalists": finals, "params": params}
    return curve, (fits[best], scores[best]), kind


def scan_medoids(
    distances: Floats,
    score: Callable[[Medoids], float | None],
    size: int,
    num_features: int | None,
    wanted: _Wanted,
) -> tuple[Curve, _Fit, int]:
    """(the scanned curve, the fit for a count, the chosen count) of rows that stand for ``size``
    clients.
    """
    counts, refine = (
        ([wanted.count], False)
        if wanted.count
        else counts_to_try(size, wanted.scan, wanted.max_count, num_features)
    )
    limit = min(len(distances), size if wanted.count else size - 1)
    counts = sorted({min(c, limit) for c in counts})
    library = wanted.variant == "sklearn_extra"
    most = min(limit, max(counts) + 2)
    start = central_rows(distances) if library else build(distances, most)

    restarts = wanted.restarts if len(distances) <= RESTART_LIMIT else 0

    @cache
    def fit(c: int) -> Medoids:
        return alternate(distances, start[:c]) if library else swap(distances, start[:c], restarts)

    curve = scan_counts(lambda c: score(fit(c)), counts, refine=refine, limit=limit)
    return curve, fit, min(wanted.count, limit) if wanted.count else curve.best or 2


def build(distances: Floats, count: int) -> Ints:
    """The BUILD phase of PAM: rows in the order they are added, so that a prefix is the start for
    any smaller count.

    What a medoid gains can only shrink as others are added (the objective is submodular), so an old
    gain is an upper bound and only the few highest need computing again. Same answer as the plain
    loop; 1,000 clients, 100 medoids: 0.04 s, not 0.36 s.

    >>> build(np.abs(np.subtract.outer([0., 1., 2., 9.], [0., 1., 2., 9.])), 2)
    array([1, 3])
    """
    chosen = np.empty(count, np.int64)
    chosen[0] = distances.sum(axis=0).argmin()
    near, bound = distances[chosen[0]].copy(), np.full(len(distances), np.inf)
    bound[chosen[0]] = -np.inf
    for position in range(1, count):
        chosen[position] = _best_addition(distances, near, bound)
        bound[chosen[position]] = -np.inf
        np.minimum(near, distances[chosen[position]], out=near)
    return chosen


def _best_addition(distances: Floats, near: Floats, bound: Floats) -> int:
    """The row that lowers the total distance most; ``bound`` is tightened in place."""
    stale = bound.copy()
    while True:
        top = int(bound.argmax())
        if stale[top] == -np.inf:
            return top
        width = min(_LAZY_BATCH, len(stale))
        batch = np.argpartition(stale, -width)[-width:]
        batch = batch[stale[batch] > -np.inf]
        bound[batch] = np.maximum(near - distances[batch], 0.0).sum(axis=1)
        stale[batch] = -np.inf


def swap(distances: Floats, start: Ints, restarts: int) -> Medoids:
    """FasterPAM from given medoids and from some drawn ones, the lowest total distance wins, the
    first among equals.

    Drawn without the run's chance: the same answer every time.
    """
    rng = np.random.default_rng(len(start))
    drawn = [rng.choice(len(distances), len(start), replace=False) for _ in range(restarts)]
    fits = [_swap(distances, rows) for rows in (start, *drawn)]
    totals = np.array([distances[fit.rows].min(axis=0).sum() for fit in fits])
    return fits[int((totals <= totals.min() + TIE).argmax())]


def _swap(distances: Floats, start: Ints) -> Medoids:
    """FasterPAM from given medoids, one thread."""
    # brings scikit-learn along, which takes a second: not for every command
    from kmedoids import fasterpam

    result = fasterpam(distances, start, n_cpu=1)
    return Medoids(result.medoids.astype(np.int64), result.labels.astype(np.int64))


def central_rows(distances: Floats) -> Ints:
    """Rows by total distance, the most central first: scikit-learn-extra's ``heuristic`` start."""
    return np.argsort(distances.sum(axis=1), kind="stable")


def alternate(distances: Floats, start: Ints) -> Medoids:
    """Assign to the nearest medoid, move each medoid to the best member, repeat; an empty
    cluster keeps its medoid.
    """
    rows = np.array(start, np.int64)
    for _ in range(_MAX_ITERATIONS):
        labels = distances[rows].argmin(axis=0)
        moved = _best_members(distances, rows, labels)
        if np.array_equal(moved, rows):
            break
        rows = moved
    return Medoids(rows, distances[rows].argmin(axis=0))


def _best_members(distances: Floats, rows: Ints, labels: Ints) -> Ints:
    """Each cluster's member with the smallest total distance inside it; the old medoid unless
    that is strictly better.
    """
    inside = (distances * (labels[:, None] == labels)).sum(axis=1)
    order = np.lexsort((inside, labels))
    first = order[np.unique(labels[order], return_index=True)[1]]
    moved = rows.copy()
    better = inside[first] < inside[rows[labels[first]]]
    # a medoid that lost itself to an equal one has no cost of its own
    outside = labels[rows[labels[first]]] != labels[first]
    moved[labels[first[better | outside]]] = first[better | outside]
    return moved
