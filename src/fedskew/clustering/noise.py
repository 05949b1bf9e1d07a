"""What becomes of clients that a density clustering leaves alone (label -1): four policies of
docs/methods.md 3.2.

- ``nearest``: they join the cluster with the smallest mean distance. The default.
- ``singletons``: each is a cluster of its own (HACCS and the public code next to paper 000 do
  this). A rule that ranks clusters by loss then fills with singletons: 54 % of those chosen against
  28 % under ``nearest`` in the toy check of docs/methods.md 3.2.
- ``one``: all of them form one more cluster.
- ``drop``: they keep label -1 and no cluster rule ever chooses them, about 27 % of the clients at
  alpha = 0.05.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy

from fedskew.clustering.space import chunks
from fedskew.types import Floats, Ints

NoisePolicy = Literal["nearest", "singletons", "one", "drop"]


def nearest_clusters(distances: Floats, labels: Ints) -> Ints:
    """(K,) for each client the cluster with the smallest mean distance; all 0 when there is no
    cluster.

    >>> D = np.abs(np.subtract.outer([0., 1., 9., 4.], [0., 1., 9., 4.]))
    >>> nearest_clusters(D, np.array([0, 0, 1, -1]))
    array([0, 0, 1, 0])
    """
    members = np.flatnonzero(labels >= 0)
    if not len(members):
        return np.zeros(len(labels), np.int64)
    return _nearest(distances, members, labels[members])


def nearest_clusters_of_points(points: Floats, labels: Ints) -> Ints:
    """The same from points, in blocks; only noise is looked at, everybody else keeps the label.

    >>> nearest_clusters_of_points(np.array([[0.], [1.], [9.], [4.]]), np.array([0, 0, 1, -1]))
    array([0, 0, 1, 0])
    """
    nearest = labels.copy()
    noise, members = np.flatnonzero(labels < 0), np.flatnonzero(labels >= 0)
    for rows in chunks(len(noise), len(members)):
        block = scipy.spatial.distance.cdist(points[members], points[noise[rows]])
        nearest[noise[rows]] = _nearest(block, np.arange(len(members)), labels[members])
    return nearest


def _nearest(distances: Floats, rows: Ints, labels: Ints) -> Ints:
    """For each column the label with the smallest mean distance over the rows that have it."""
    old, own, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    pick = scipy.sparse.csr_array((1.0 / sizes[own], (own, rows)), shape=(len(old), len(distances)))
    return np.asarray(old[np.asarray(pick @ distances).argmin(axis=0)])


def resolve_noise(labels: Ints, policy: NoisePolicy, nearest: Ints) -> Ints:
    """Labels with the policy applied; ``nearest`` says where each client would go.

    >>> resolve_noise(np.array([0, -1, -1]), "singletons", np.zeros(3, np.int64))
    array([0, 1, 2])
    """
    resolved = np.array(labels, np.int64)
    noise = np.flatnonzero(resolved < 0)
    extra = int(resolved.max(initial=-1)) + 1
    if policy == "nearest":
        resolved[noise] = nearest[noise]
    elif policy == "singletons":
        resolved[noise] = extra + np.arange(len(noise))
    elif policy == "one":
        resolved[noise] = extra
    return resolved
