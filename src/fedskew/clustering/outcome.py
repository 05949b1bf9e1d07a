"""Turn the labels of the known clients into a :class:`~fedskew.types.Clustering` of all clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy

from fedskew.clustering.labels import relabel
from fedskew.clustering.space import Space
from fedskew.types import Clustering, Floats, Geometry, Ints


def conclude(
    geometry: Geometry,
    space: Space,
    labels: Ints,
    details: Mapping[str, Any],
    *,
    silhouette: float | None,
    noise_fraction: float = 0.0,
    exact: bool = True,
    medoids: Ints | None = None,
) -> Clustering:
    """Number the clusters by smallest member, give unknown clients -1, and add each cluster's
    centre.

    ``medoids`` are rows of the space, indexed by the old label; without them centres are the means
    of the members.
    """
    renumbered, old = relabel(labels)
    everyone = np.full(geometry.size, -1, np.int64)
    everyone[space.ids] = renumbered
    extra: dict[str, Any] = {
        "num_clusters": len(old),
        "num_known": space.size,
        "geometry": geometry.name,
    }
    if medoids is not None:
        extra["medoids"] = space.ids[medoids[old]]
    if space.points is not None:
        extra["centers"] = (
            mean_points(space.points, renumbered) if medoids is None else space.points[medoids[old]]
        )
    return Clustering(everyone, silhouette, noise_fraction, exact, {**details, **extra})


def one_cluster(geometry: Geometry, space: Space, algorithm: str, **details: Any) -> Clustering:
    """Everybody known in one cluster, silhouette None."""
    reason = {"algorithm": algorithm, "params": {}, "num_noise": 0, **details}
    return conclude(geometry, space, np.zeros(space.size, np.int64), reason, silhouette=None)


def mean_points(points: Floats, labels: Ints) -> Floats:
    """(k, F) the mean point of each cluster 0..k-1; noise takes no part.

    >>> mean_points(np.array([[0.0], [2.0], [9.0], [5.0]]), np.array([0, 0, 1, -1]))
    array([[1.],
           [9.]])
    """
    members = np.flatnonzero(labels >= 0)
    own = labels[members]
    count = int(own.max(initial=-1)) + 1
    pick = scipy.sparse.csr_array(
        (1.0 / np.bincount(own)[own], (own, members)), shape=(count, len(points))
    )
    return np.asarray(pick @ points)
