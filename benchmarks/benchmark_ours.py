"""Twenty rounds of fedskew in a fresh process, run by benchmarks/flower.py.

``benchmark_ours.py CLIENTS EXAMPLES``

The same job as flower_app.py. The last line is ``RESULT {"steady": seconds}``.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np

from fedskew import models
from fedskew.loop.federation import play_round, prepare, settle
from fedskew.recipe import method_of, resolve
from fedskew.runtime.local.runtime import LocalRuntime
from fedskew.runtime.local.store import Store
from fedskew.streams import stream

IMAGES, M, ROUNDS, WARM_UP, BATCH, LR = 60_000, 10, 20, 2, 64, 0.005


def store(clients: int, examples: int) -> Store:
    rng, few = stream(0, "benchmark"), np.arange(100)
    x, y = rng.integers(0, 256, (IMAGES, 28, 28), dtype=np.uint8), rng.integers(0, 10, IMAGES)
    return Store(
        x=x,
        y=y,
        train_order=rng.integers(0, IMAGES, clients * examples),
        train_offsets=np.arange(clients + 1) * examples,
        x_test=x[:100],
        y_test=y[:100],
        central_order=few,
        test_order=few,
        test_offsets=np.zeros(clients + 1, np.int64),
        num_classes=10,
        mean=np.float32(0.1307),
        std=np.float32(0.3081),
    )


def main(clients: int, examples: int) -> None:
    # the last round would be evaluated
    run = {"rounds": 10**6, "clients_per_round": M, "evaluate_every": 0}
    method = method_of(resolve({"local": {"batch": BATCH, "lr": LR}, "run": run}))
    seconds = []
    with LocalRuntime(
        store(clients, examples), lambda: models.build("mlp", (28, 28), 10), workers=2
    ) as runtime:
        setting = settle(method, runtime, seed=0)
        state, _ = prepare(setting)
        for _ in range(ROUNDS):
            began = time.perf_counter()
            state, record = play_round(setting, state)
            seconds.append(time.perf_counter() - began)
            if len(record.loss) != M:
                sys.exit(f"round {state.round}: {len(record.loss)} of {M} clients replied")
    print("ROUNDS", " ".join(f"{s:.3f}" for s in seconds))
    print("RESULT", json.dumps({"steady": statistics.median(seconds[WARM_UP:])}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
