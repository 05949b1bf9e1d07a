"""Do seeds change the groups of many clients? Four clusterings, four alphas, ten seeds.

The same clients are grouped ten times, each time with another seed and in another order; that is
``spread`` (largest over smallest number of groups) and ``ARI`` (the lowest agreement with the first
seed). ``new data`` is the number of groups in federations drawn anew: what chance in the data does.

    python benchmarks/stability.py [clients] [seeds] [exact limit]

Finished rows are kept in /tmp and not measured again. Exit code 1 if a limit is missed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from clustering import points_for, skewed_rows
from fedskew.clustering import CLUSTERINGS, agreement
from fedskew.types import Geometry

DEFAULTS = (100_000, 10, 0)  # clients, seeds, exact limit
ALPHAS = (0.05, 0.1, 0.5, 2.0)
MOST_SPREAD, LEAST_ARI, CLEAR = 1.1, 0.9, 0.25


def row(algorithm: str, alpha: float, clients: int, seeds: int, limit: int) -> dict[str, Any]:
    """One line of the table."""
    points = points_for(algorithm, skewed_rows(clients, 0, alpha))
    group, found = CLUSTERINGS[algorithm], []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(clients) if seed else np.arange(clients)
        answer = group(
            Geometry(points=points[order]), np.random.default_rng(seed), exact_limit=limit
        )
        labels = np.empty(clients, np.int64)
        labels[order] = answer.labels
        found.append((answer, labels))
    anew = [
        group(
            Geometry(points=points_for(algorithm, skewed_rows(clients, seed, alpha))),
            np.random.default_rng(0),
            exact_limit=limit,
        )
        for seed in range(1, 3)
    ]
    counts = [answer.k for answer, _ in found]
    everyone = found[0][0].details.get("silhouette_of_all")
    return {
        "groups": counts[0],
        "silhouette": found[0][0].silhouette,
        "of all": everyone,
        "noise": max(answer.noise_fraction for answer, _ in found),
        "spread": max(counts) / min(counts),
        "ARI": min(agreement(labels, found[0][1]).ari for _, labels in found),
        "new data": [answer.k for answer in anew],
    }


def main() -> int:
    """Print the table line by line."""
    given = [int(value) for value in sys.argv[1:]]
    clients, seeds, limit = [*given, *DEFAULTS[len(given) :]]
    kept = Path(f"/tmp/fedskew-stability-{clients}-{seeds}-{limit}.json")
    rows = json.loads(kept.read_text()) if kept.exists() else {}
    missed = 0
    print(f"{clients:,} clients, {seeds} seeds", flush=True)
    for alpha in ALPHAS:
        for algorithm in CLUSTERINGS:
            key = f"{algorithm} {alpha}"
            if key not in rows:
                rows[key] = row(algorithm, alpha, clients, seeds, limit)
                kept.write_text(json.dumps(rows))
            line = rows[key]
            clear = (line["silhouette"] or 0.0) >= CLEAR
            bad = line["spread"] > MOST_SPREAD or (clear and line["ARI"] < LEAST_ARI)
            missed += bad or line["noise"] > 0.5
            print(f"{key:14}", line, "MISSED" if bad else "", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
