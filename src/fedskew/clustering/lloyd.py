"""The inner loops of k-means: k-means++ seeding of several restarts at once, then Lloyd's
iterations as one matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from fedskew.clustering.space import chunks
from fedskew.types import Bools, Floats, Ints

_MAX_ITERATIONS = 300  # scikit-learn's default
_REFINE_ITERATIONS = 50
_REFINE_SHARE = 1e-4  # refining stops when fewer clients than this share change their cluster


@dataclass(frozen=True)
class Means:
    """One fit of k-means."""

    labels: Ints  # (n,)
    centers: Floats  # (k, F)
    inertia: float  # sum of weight x squared distance to the own centre


def seed_rows(
    points: Floats, weights: Floats, count: int, restarts: int, rng: np.random.Generator
) -> Ints:
    """(restarts, count) rows chosen by k-means++, each the best of 2 + ln(count) candidates as in
    scikit-learn.

    Every prefix is itself a k-means++ seeding, so one call serves all smaller counts. ``count``
    must not exceed the number of distinct points.
    """
    trials = 2 + int(np.log(count))
    every = np.arange(restarts)
    picks = np.empty((restarts, count), np.int64)
    picks[:, 0] = rng.choice(len(points), restarts, p=weights / weights.sum())
    near = scipy.spatial.distance.cdist(points[picks[:, 0]], points, "sqeuclidean")
    for step in range(1, count):
        candidates = _draw(near * weights, trials, rng)
        left = scipy.spatial.distance.cdist(
            points[candidates.ravel()], points, "sqeuclidean"
        ).reshape(*candidates.shape, -1)
        np.minimum(left, near[:, None, :], out=left)
        best = (left @ weights).argmin(axis=1)
        picks[:, step], near = candidates[every, best], left[every, best]
    return picks


def _draw(mass: Floats, trials: int, rng: np.random.Generator) -> Ints:
    """(restarts, trials) columns drawn in proportion to ``mass`` (restarts, n), never one
    without mass.
    """
    total = np.cumsum(mass, axis=1)
    # u < 1 keeps the drawn height below the last step of the staircase, so side="right" lands on a
    # column with mass
    heights = rng.random((len(mass), trials)) * total[:, -1:]
    drawn = [
        np.searchsorted(row, height, side="right")
        for row, height in zip(total, heights, strict=True)
    ]
    last = mass.shape[1] - 1 - np.argmax(mass[:, ::-1] > 0, axis=1)
    return np.asarray(np.minimum(np.array(drawn, np.int64), last[:, None]))


def best_restart(points: Floats, weights: Floats, starts: Floats) -> Means:
    """Lloyd from every start (restarts, k, F) until no label changes; the fit with the lowest
    inertia, the first among equals.

    >>> X = np.array([[0.0], [1.0], [9.0]])
    >>> best_restart(X, np.ones(3), np.array([[[0.0], [9.0]]]))
    Means(labels=array([0, 0, 1]), centers=array([[0.5],
           [9. ]]), inertia=0.5)
    """
    centers = starts.copy()
    labels = np.full((len(starts), len(points)), -1, np.int64)
    live = np.arange(len(starts))
    for _ in range(_MAX_ITERATIONS):
        found = _nearest(points, centers[live])
        changed: Bools = (found != labels[live]).any(axis=1)
        labels[live] = found
        live = live[changed]
        if not len(live):
            break
        centers[live] = _means(points, weights, found[changed], centers[live])
    inertia = np.array(
        [_inertia(points, weights, row, own) for row, own in zip(labels, centers, strict=True)]
    )
    best = int(np.argmin(inertia))
    return Means(labels[best], centers[best], float(inertia[best]))


def refine_centers(points: Floats, centers: Floats, *, until_still: bool = False) -> Means:
    """Lloyd on many points from good centres: at most 50 rounds, or until less than 0.01 % of
    the points move. ``until_still``: until nobody moves, as for few points.
    """
    rounds, share = (_MAX_ITERATIONS, 0.0) if until_still else (_REFINE_ITERATIONS, _REFINE_SHARE)
    weights, labels = np.ones(len(points)), np.full(len(points), -1, np.int64)
    for _ in range(rounds):
        found = _nearest(points, centers[None])[0]
        moved = np.count_nonzero(found != labels)
        labels = found
        centers = _means(points, weights, labels[None], centers[None])[0]
        if moved <= share * len(points):
            break
    return Means(labels, centers, _inertia(points, weights, labels, centers))


def _nearest(points: Floats, centers: Floats) -> Ints:
    """(restarts, n) the nearest centre of each restart. [x, 1] . [-2c, |c|^2] ranks centres like
    the distance does.
    """
    restarts, count, features = centers.shape
    flat = np.concatenate([-2.0 * centers, (centers * centers).sum(axis=2, keepdims=True)], axis=2)
    flat = flat.reshape(restarts * count, features + 1).T
    found = np.empty((restarts, len(points)), np.int64)
    for rows in chunks(len(points), restarts * count):
        block = points[rows]
        ranks = np.column_stack([block, np.ones(len(block))]) @ flat
        found[:, rows] = ranks.reshape(len(block), restarts, count).argmin(axis=2).T
    return found


def _means(points: Floats, weights: Floats, labels: Ints, centers: Floats) -> Floats:
    """The weighted mean of each cluster of each restart; an empty cluster keeps its centre."""
    restarts, count, features = centers.shape
    own = (labels + count * np.arange(restarts)[:, None]).ravel()
    mass = np.bincount(own, np.tile(weights, restarts), restarts * count)
    moved = centers.reshape(-1, features).copy()
    kept = mass > 0
    for column in range(features):
        total = np.bincount(own, np.tile(weights * points[:, column], restarts), restarts * count)
        moved[kept, column] = total[kept] / mass[kept]
    return moved.reshape(centers.shape)


def _inertia(points: Floats, weights: Floats, labels: Ints, centers: Floats) -> float:
    gap = points - centers[labels]
    return float(weights @ (gap * gap).sum(axis=1))
