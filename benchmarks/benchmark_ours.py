"""Twenty rounds of fedskew in a fresh process, for benchmarks/flower.py: prints the seconds of each round as JSON."""

from __future__ import annotations

import json
import time

import numpy as np

from fedskew import models
from fedskew.federation import play_round, prepare, settle
from fedskew.runtime.local.runtime import LocalRuntime
from fedskew.runtime.local.store import Store
from fedskew.streams import stream
from rounds import method


def main(clients: int, examples: int) -> None:
    rng = stream(0, "benchmark")
    x, y = rng.integers(0, 256, (60_000, 28, 28), dtype=np.uint8), rng.integers(0, 10, 60_000)
    few = np.arange(100)
    box = Store(
        x=x, y=y, train_order=rng.integers(0, 60_000, clients * examples), train_offsets=np.arange(clients + 1) * examples,
        x_test=x[:100], y_test=y[:100], central_order=few, test_order=few, test_offsets=np.zeros(clients + 1, np.int64),
        num_classes=10, mean=np.float32(0.1307), std=np.float32(0.3081),
    )  # fmt: skip
    seconds = []
    with LocalRuntime(box, lambda: models.build("mlp", (28, 28), 10), workers=2) as runtime:
        setting = settle(method(), runtime, seed=0)
        state, _ = prepare(setting)
        for _ in range(20):
            began = time.perf_counter()
            state, _ = play_round(setting, state)
            seconds.append(time.perf_counter() - began)
    print(json.dumps(seconds))
