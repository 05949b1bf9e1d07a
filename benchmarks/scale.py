"""What ten thousand clients cost: start-up, memory of all processes, and the time of a round
against a hundred clients.

MNIST if it is in the cache, else random pixels of the same shape; similarity partition S=0. Exit
code 1 if a limit is missed.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

from fedskew import models
from fedskew.data import build_shards, from_arrays
from fedskew.experiment.world import store_of
from fedskew.loop.federation import play_round, prepare, settle
from fedskew.runtime.local.runtime import LocalRuntime
from rounds import method, pixels, store
from table import Figure, report


def family() -> list[int]:
    """This process and its children."""
    me = os.getpid()
    children = Path(f"/proc/{me}/task/{me}/children").read_text().split()
    return [me, *map(int, children)]


def resident_megabytes() -> float:
    """Proportional memory of all processes: a shared page is divided among those who share it."""
    total = 0
    for pid in family():
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1e3


def factory():
    return models.build("mlp", (28, 28), 10)


def start_up() -> list[Figure]:
    """The same pixels for a hundred clients, then for ten thousand."""
    (small, _), (large, megabytes) = first_round(100), first_round(10_000)
    note = f"{large:.2f} s, {small:.2f} s"
    return [
        Figure("to the first round at K=10,000 / at K=100", large / small, 2.0, note),
        Figure("K=10,000: MB of all processes", megabytes, 2500.0),
    ]


def first_round(clients: int) -> tuple[float, float]:
    """(seconds until the first round can begin, megabytes after five)."""
    x, y = pixels()
    began = time.perf_counter()
    dataset = from_arrays(x, y, x[:10_000], y[:10_000])
    shards = build_shards(
        dataset, clients=clients, partition="similarity", options={"similarity": 0.0}, seed=0
    )
    with LocalRuntime(store_of(shards), factory, workers=2) as runtime:
        setting = settle(method(), runtime, seed=0)
        state, _ = prepare(setting)
        seconds = time.perf_counter() - began
        for _ in range(5):
            state, _ = play_round(setting, state)
        return seconds, resident_megabytes()


def growth() -> list[Figure]:
    """The same clients' sizes, 100 times as many of them: rounds in turn."""
    x, y = pixels()
    # 6 examples each in both, so that only K differs
    boxes = {k: store(x, y, k, 6) for k in (100, 10_000)}
    runtimes = {k: LocalRuntime(box, factory, workers=2) for k, box in boxes.items()}
    settings = {k: settle(method(), runtime, seed=0) for k, runtime in runtimes.items()}
    states = {k: prepare(setting)[0] for k, setting in settings.items()}
    seconds: dict[int, list[float]] = {100: [], 10_000: []}
    for _ in range(60):
        for k, setting in settings.items():
            began = time.perf_counter()
            states[k], _ = play_round(setting, states[k])
            seconds[k].append(time.perf_counter() - began)
    for runtime in runtimes.values():
        runtime.close()
    small, large = (statistics.median(seconds[k][10:]) for k in (100, 10_000))
    return [
        Figure(
            "round at K=10,000 / round at K=100, m=10",
            large / small,
            1.3,
            f"{1000 * large:.1f} ms, {1000 * small:.1f} ms",
        )
    ]


if __name__ == "__main__":
    sys.exit(report("Scale", start_up() + growth()))
