"""How long clustering takes and how well its approximate path agrees with the exact one, each against what issue 3 requires.

Prints one line per figure, ``name value limit ok|MISSED`` (limit ``-``: no requirement), and writes nothing. Exit code 1 if a
requirement is missed. ``--million`` adds one million clients. On one thread: OMP_NUM_THREADS=1 python benchmarks/clustering.py
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedskew.clustering import CLUSTERINGS, agreement
from fedskew.types import Clustering, Floats, Geometry, Ints

CLASSES = 10


@dataclass(frozen=True)
class Figure:
    """One measured number and what it has to be."""

    name: str
    value: float
    limit: float | None = None
    at_least: bool = False

    @property
    def ok(self) -> bool:
        if self.limit is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        limit = "-" if self.limit is None else f"{'>=' if self.at_least else '<='}{self.limit:g}"
        return f"{self.name:<44} {self.value:>10.3f} {limit:>8} {'ok' if self.ok else 'MISSED'}"


def skewed_rows(clients: int, seed: int = 0, alpha: float = 0.2) -> Floats:
    """Label proportions without clear groups: every client its own Dirichlet draw."""
    return np.random.default_rng(seed).dirichlet(np.full(CLASSES, alpha), clients)


def separated_rows(clients: int, seed: int = 0) -> tuple[Floats, Ints]:
    """Label proportions of ten clear groups, 80 % of each client in one class, and the group of each client."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, CLASSES, clients)
    return 0.8 * np.eye(CLASSES)[groups] + 0.2 * rng.dirichlet(np.ones(CLASSES), clients), groups


def hellinger_points(rows: Floats) -> Floats:
    """Points whose Euclidean distance is the Hellinger distance (METHODS 2.1)."""
    return np.sqrt(rows / 2.0)


def psi_points(rows: Floats) -> Floats:
    """Standardised PSI features of equally large clients (METHODS 2.11, 3.5)."""
    reference = rows.mean(axis=0)
    per_class = (rows - reference) * np.log((rows + 1e-6) / (reference + 1e-6))
    features = np.column_stack([per_class.sum(axis=1), per_class])
    return (features - features.mean(axis=0)) / features.std(axis=0)


def points_for(algorithm: str, rows: Floats) -> Floats:
    """What the papers feed each algorithm with."""
    return psi_points(rows) if algorithm == "kmeans" else hellinger_points(rows)


def timed(algorithm: str, rows: Floats, **options: object) -> tuple[float, Clustering]:
    """(seconds, clustering); making the points is not part of it."""
    geometry = Geometry(points=points_for(algorithm, rows))
    start = time.perf_counter()
    found = CLUSTERINGS[algorithm](geometry, np.random.default_rng(0), **options)
    return time.perf_counter() - start, found


def scans() -> Iterator[Figure]:
    """The three whole scans at 300 clients."""
    rows = skewed_rows(300)
    yield Figure("kmedoids scan c=2..299, K=300 [s]", timed("kmedoids", rows, scan="full")[0], 3)
    yield Figure("kmedoids sklearn_extra scan, K=300 [s]", timed("kmedoids", rows, scan="full", variant="sklearn_extra")[0])
    yield Figure("kmeans scan tau=2..299, n_init=10, K=300 [s]", timed("kmeans", rows, scan="full")[0], 10)
    yield Figure("optics grid of 160, K=300 [s]", timed("optics", rows)[0], 15)
    yield Figure("dbscan grid of 30, K=300 [s]", timed("dbscan", rows)[0])


def growth(most: int) -> Iterator[Figure]:
    """Seconds with a chosen count from 100 clients on, ten times more each step; rows without groups, the slower case."""
    for algorithm in CLUSTERINGS:
        for clients in [10**power for power in range(2, most + 1)]:
            limit = 60.0 if clients == 100_000 else None
            yield Figure(f"{algorithm} K={clients} [s]", timed(algorithm, skewed_rows(clients))[0], limit)


def million() -> Iterator[Figure]:
    """One million clients: all four, one after the other, and the most memory the process ever held."""
    rows = skewed_rows(1_000_000)
    total = 0.0
    for algorithm in CLUSTERINGS:
        seconds, _ = timed(algorithm, rows)
        total += seconds
        yield Figure(f"{algorithm} K=1000000 [s]", seconds, 480)
    yield Figure("all four K=1000000 [s]", total, 480)
    yield Figure("peak memory of this process [GB]", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 6)


def agreements() -> Iterator[Figure]:
    """Adjusted Rand index between the approximate and the exact path, 3,000 clients in ten separated groups."""
    rows, groups = separated_rows(3_000)
    for algorithm in CLUSTERINGS:
        exact = timed(algorithm, rows)[1]
        near = timed(algorithm, rows, exact_limit=500, sample_size=500)[1]
        yield Figure(f"{algorithm} ARI approximate / exact, K=3000", agreement(near.labels, exact.labels).ari, 0.9, True)
        yield Figure(f"{algorithm} ARI approximate / truth, K=3000", agreement(near.labels, groups).ari, 0.9, True)
    rows = skewed_rows(3_000)
    for algorithm in ("kmedoids", "kmeans"):  # for honesty: no requirement, because there is no right answer
        exact, near = timed(algorithm, rows)[1], timed(algorithm, rows, exact_limit=500, sample_size=500)[1]
        yield Figure(f"{algorithm} ARI without clear groups, K=3000", agreement(near.labels, exact.labels).ari)


def main() -> int:
    """Print every figure as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--million", action="store_true", help="also one million clients (minutes)")
    parser.add_argument("--growth-to", type=int, default=5, metavar="POWER", help="largest power of ten in the growth table")
    asked = parser.parse_args()
    missed = 0
    for part in [scans(), agreements(), growth(asked.growth_to), *([million()] if asked.million else [])]:
        for figure in part:
            print(figure, flush=True)
            missed += not figure.ok
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
