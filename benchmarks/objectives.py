"""What local objectives cost beside plain cross-entropy.

The MLP set-up of rounds.py, but every client has one or two classes, so that all of them lack some
and every teacher is asked; and one linear layer on a table of 20 columns, all clients at once. The
objectives take turns round by round, so that a noisy machine hurts all of them; medians are
printed. Exit code 1 if a limit is missed.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from fedskew.runtime.local.store import Store
from fedskew.streams import stream
from optimisers import ratios, round_times
from rounds import EXAMPLES, K, pixels, store
from table import report

ROUNDS = 25


def method(name: str, limit: float | None = None):
    return {"objective": {"use": name}}, limit


ON_MLP = {
    "cross-entropy": method("cross_entropy"),
    "logit_adjusted": method("logit_adjusted", 1.10),
    "fedlc": method("fedlc", 1.10),
    "fedrs": method("fedrs", 1.10),
    "fedntd": method("fedntd", 1.6),
    "fedvls": method("fedvls", 1.6),
}
ON_TABLES = {name: (changes, None) for name, (changes, _) in ON_MLP.items()}


def by_label(box: Store) -> Store:
    """The same examples, dealt out in the order of their labels."""
    order = box.train_order[np.argsort(box.y[box.train_order], kind="stable")]
    return replace(box, train_order=order)


def table() -> Store:
    rng = stream(0, "benchmark")
    x = rng.normal(size=(K * EXAMPLES, 20)).astype(np.float32)
    box = store(x, rng.integers(0, 10, len(x)), K, EXAMPLES)
    return by_label(replace(box, mean=None, std=None))


def main() -> int:
    torch.set_num_threads(1)
    with threadpool_limits(1):  # as in a run
        wide = round_times(ON_MLP, by_label(store(*pixels(), K, EXAMPLES)), "mlp", ROUNDS)
        narrow = round_times(ON_TABLES, table(), "logistic", ROUNDS, workers=1)
    figures = ratios("MLP, ", ON_MLP, wide) + ratios("linear, ", ON_TABLES, narrow)
    return report("Objectives (MLP 784-200-200-10 on 2 workers; 20-10 all at once)", figures)


if __name__ == "__main__":
    sys.exit(main())
