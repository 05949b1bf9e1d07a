"""How long skew figures and clusterings take from 100 to a million clients; how well approximate
paths agree with exact ones.

Times are in yardsticks (yardstick.py). Exit code 1 if a limit is missed.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from fedskew.clustering import CLUSTERINGS, agreement
from fedskew.distance import skew_figures
from fedskew.types import Clustering, Floats, Geometry, Ints
from table import Figure, report
from yardstick import in_yardsticks

EXTRA: dict[str, object] = {"variant": "sklearn_extra"}
CLASSES, MOST = 10, 6  # the largest federation has 10^MOST clients


def skewed_rows(clients: int, seed: int = 0, alpha: float = 0.2) -> Floats:
    """Label proportions without clear groups: every client its own Dirichlet draw."""
    return np.random.default_rng(seed).dirichlet(np.full(CLASSES, alpha), clients)


def separated_rows(clients: int, seed: int = 0) -> tuple[Floats, Ints]:
    """Label proportions of ten clear groups, 80 % of a client in one class; and the groups."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, CLASSES, clients)
    return 0.8 * np.eye(CLASSES)[groups] + 0.2 * rng.dirichlet(np.ones(CLASSES), clients), groups


def hellinger_points(rows: Floats) -> Floats:
    """Points whose Euclidean distance is the Hellinger distance (docs/methods.md 2.1)."""
    return np.sqrt(rows / 2.0)


def psi_points(rows: Floats) -> Floats:
    """Standardised PSI features of equally large clients (docs/methods.md 2.11, 3.5)."""
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
    cases: list[tuple[str, str, dict[str, object], float | None]] = [
        ("kmedoids scan c=2..299", "kmedoids", {"scan": "full"}, 300),
        ("kmedoids sklearn_extra scan", "kmedoids", {"scan": "full", **EXTRA}, None),
        ("kmeans scan tau=2..299, n_init=10", "kmeans", {"scan": "full"}, 1000),
        ("optics grid of 160", "optics", {}, 1500),
        ("dbscan grid of 30", "dbscan", {}, None),
    ]
    for title, algorithm, options, limit in cases:
        yield wall(f"{title}, K=300", seconds_of(algorithm, rows, **options), limit)


def wall(title: str, measure: Callable[[], float], limit: float | None) -> Figure:
    """In yardsticks of wall time: clusterings use all cores."""
    return in_yardsticks(title, measure, limit, time.perf_counter)


def seconds_of(algorithm: str, rows: Floats, **options: object) -> Callable[[], float]:
    return lambda: timed(algorithm, rows, **options)[0]


def seconds_of_figures(counts: Ints) -> float:
    start = time.perf_counter()
    skew_figures(counts)
    return time.perf_counter() - start


def growth() -> Iterator[Figure]:
    """Times from 100 clients on, ten times more each step; rows without groups, the slower
    case. At the end, a million.
    """
    total = 0.0
    for clients in [10**power for power in range(2, MOST + 1)]:
        rows = skewed_rows(clients)
        counts = np.rint(600 * rows).astype(np.int64)
        measures = {"skew figures": partial(seconds_of_figures, counts)}
        measures |= {f"{name}, count chosen": seconds_of(name, rows) for name in CLUSTERINGS}
        total = 0.0
        for name, measure in measures.items():
            limit = (200 if name == "skew figures" else 1500) if clients == 100_000 else None
            figure = wall(f"{name}, K={clients:,}", measure, limit)
            total += figure.value
            yield figure
    yield Figure(f"all of these, K={10**MOST:,} / yardstick", total, 6000)
    yield Figure(
        "largest memory of this process [GB]",
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        6,
    )


def agreements() -> Iterator[Figure]:
    """Adjusted Rand index of approximate against exact: 3,000 clients in ten separated groups."""
    rows, groups = separated_rows(3_000)
    for algorithm in CLUSTERINGS:
        exact = timed(algorithm, rows)[1]
        near = timed(algorithm, rows, exact_limit=0, summary_size=500)[1]
        yield Figure(
            f"{algorithm} ARI approximate / exact, K=3000",
            agreement(near.labels, exact.labels).ari,
            0.9,
            at_least=True,
        )
        yield Figure(
            f"{algorithm} ARI approximate / truth, K=3000",
            agreement(near.labels, groups).ari,
            0.9,
            at_least=True,
        )
    rows = skewed_rows(3_000)
    # for honesty: no requirement, because there is no right answer
    for algorithm in ("kmedoids", "kmeans"):
        exact, near = (
            timed(algorithm, rows)[1],
            timed(algorithm, rows, exact_limit=0, summary_size=500)[1],
        )
        yield Figure(
            f"{algorithm} ARI without clear groups, K=3000",
            agreement(near.labels, exact.labels).ari,
        )


def main() -> int:
    """Print every part when it is measured."""
    parts = {"scans of the number of clusters": scans, "agreement": agreements, "growth": growth}
    return max([report(title, list(part())) for title, part in parts.items()])


if __name__ == "__main__":
    sys.exit(main())
