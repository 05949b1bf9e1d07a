"""Where a density clustering looks for groups: at all pairs, at row after row, or at cells.

====================  ======================  ==========================  ======
clients               distances               one row is                  exact
====================  ======================  ==========================  ======
to 5,000, or pairs    a matrix                a client                    yes
to ``exact_limit``    row by row from points  a client                    yes
above                 a matrix                a cell of near-equal ones   no
====================  ======================  ==========================  ======
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedskew.clustering.noise import nearest_clusters, nearest_clusters_of_points
from fedskew.clustering.silhouette import silhouette, silhouette_bounds, silhouettes_of_points
from fedskew.clustering.space import PAIRWISE_LIMIT, Space
from fedskew.clustering.summary import summarise
from fedskew.clustering.walk import Distances, Rows
from fedskew.types import Floats, Ints

Scores = Callable[[Sequence[Ints]], list[float | None]]


@dataclass(frozen=True)
class Field:
    """Rows to group, and what is asked about a grouping of them."""

    distances: Distances
    weights: Floats  # (n,) clients per row
    own: Ints  # (K,) the row of each client
    scores: Scores  # silhouettes; None where not defined or certainly not the best
    nearest: Callable[[Ints], Ints]  # for noise, the cluster with the smallest mean distance
    exact: bool
    scores_everything: bool  # else only groupings that pass every other test are scored

    @property
    def size(self) -> int:
        """Clients."""
        return len(self.own)

    @property
    def scanned(self) -> dict[str, int]:
        """What was looked at, for the details."""
        return {"scanned_clients" if self.exact else "scanned_cells": len(self.weights)}


def lay_out(space: Space, *, exact_limit: int, summary_size: int) -> Field:
    """The field for this many clients."""
    if space.pairwise is not None or space.size <= min(exact_limit, PAIRWISE_LIMIT):
        return _pairs(space)
    points = space.need_points("density")
    return _rows(points) if space.size <= exact_limit else _cells(points, summary_size)


def _pairs(space: Space) -> Field:
    matrix = space.matrix()
    return Field(
        matrix,
        np.ones(space.size),
        np.arange(space.size),
        lambda groupings: [silhouette(matrix, labels) for labels in groupings],
        lambda labels: nearest_clusters(matrix, labels),
        exact=True,
        scores_everything=True,
    )


def _rows(points: Floats) -> Field:
    return Field(
        Rows(points),
        np.ones(len(points)),
        np.arange(len(points)),
        lambda groupings: contest(points, groupings),
        lambda labels: nearest_clusters_of_points(points, labels),
        exact=True,
        scores_everything=False,
    )


def _cells(points: Floats, most: int) -> Field:
    cells = summarise(points, most)
    means, between, own = cells.between_means(), cells.between_clients(), cells.own[cells.rows]
    return Field(
        means,
        cells.weights,
        cells.own,
        lambda groupings: [silhouette(between, labels[own]) for labels in groupings],
        lambda labels: nearest_clusters(means, labels),
        exact=False,
        scores_everything=True,
    )


def contest(points: Floats, groupings: Sequence[Ints]) -> list[float | None]:
    """Exact silhouettes of all groupings that may be the best; None for those that cannot.

    Bounds are quick and exact scores slow: who cannot reach the highest lower bound is out.
    """
    bounds = np.array([silhouette_bounds(points, labels) for labels in groupings])
    able = np.flatnonzero(bounds[:, 1] >= bounds[:, 0].max()).tolist()
    scores: list[float | None] = [None] * len(groupings)
    exact = silhouettes_of_points(points, [groupings[i] for i in able])
    for i, score in zip(able, exact, strict=True):
        scores[i] = score
    return scores
