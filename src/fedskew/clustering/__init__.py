"""Clustering: from how far clients are from each other to groups of clients.

Every entry of :data:`CLUSTERINGS` has the signature ``cluster(geometry, rng, *, options) ->
Clustering``: labels 0..k-1 by smallest member, -1 only for clients without known labels and for
noise under the policy ``drop``.
"""

from __future__ import annotations

from collections.abc import Callable

from fedskew.clustering import dbscan, kmeans, kmedoids, optics
from fedskew.clustering.labels import (
    Agreement,
    agreement,
    assign,
    assign_by_distances,
    relabel,
    stability,
)
from fedskew.clustering.silhouette import (
    silhouette_of_points,
    silhouette_samples,
)
from fedskew.types import Clustering

CLUSTERINGS: dict[str, Callable[..., Clustering]] = {
    "optics": optics.cluster,
    "dbscan": dbscan.cluster,
    "kmedoids": kmedoids.cluster,
    "kmeans": kmeans.cluster,
}

__all__ = [
    "CLUSTERINGS",
    "Agreement",
    "agreement",
    "assign",
    "assign_by_distances",
    "relabel",
    "silhouette_of_points",
    "silhouette_samples",
    "stability",
]
