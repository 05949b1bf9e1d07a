"""Round time as a ratio to the bare PyTorch loop, and what a round takes besides training.

K=100, m=10, 600 examples each, batch 64, one epoch, plain SGD; MNIST if it is in the cache, else
random pixels (the arithmetic is the same). The two sides take turns round by round, so that a noisy
machine hurts both; medians are printed. No evaluation on either side. Exit code 1 if a limit is
missed.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import bare
from fedskew import data, models
from fedskew.loop.federation import play_round, prepare, settle
from fedskew.recipe import method_of, resolve
from fedskew.runtime.local.process import WorkerProcess
from fedskew.runtime.local.runtime import LocalRuntime
from fedskew.runtime.local.store import Store
from fedskew.streams import stream
from table import Figure, report

K, M, EXAMPLES, BATCH, LR, WARM_UP, ROUNDS = 100, 10, 600, 64, 0.005, 3, 21


def pixels() -> tuple[np.ndarray, np.ndarray]:
    if data.is_cached("mnist"):
        mnist = data.load("mnist")
        return np.array(mnist.x), np.array(mnist.y)
    rng = stream(0, "benchmark")
    return rng.integers(0, 256, (60_000, 28, 28), dtype=np.uint8), rng.integers(0, 10, 60_000)


def store(x: np.ndarray, y: np.ndarray, clients: int, examples: int) -> Store:
    order = stream(0, "partition").permutation(len(y))[: clients * examples]
    offsets = np.arange(clients + 1) * examples
    few = np.arange(100)
    return Store(
        x=x,
        y=y,
        train_order=order,
        train_offsets=offsets,
        x_test=x[:100],
        y_test=y[:100],
        central_order=few,
        test_order=few,
        test_offsets=np.zeros(clients + 1, np.int64),
        num_classes=10,
        mean=np.float32(0.1307),
        std=np.float32(0.3081),
    )


def method(**local: object):
    run = {"rounds": 10**6, "clients_per_round": M, "evaluate_every": 0}
    return method_of(resolve({"local": {"batch": BATCH, "lr": LR, **local}, "run": run}))


class Span:
    """When the first worker got a round's clients and when each ended: between, clients train."""

    def __init__(self) -> None:
        self.first, self.ends = 0.0, []
        begin, results = WorkerProcess.begin, WorkerProcess.results

        def watched_begin(worker, message):
            begin(worker, message)
            self.first = self.first or time.perf_counter()

        def watched_results(worker):
            answers = results(worker)
            if not worker.busy:
                self.ends.append(time.perf_counter())
            return answers

        WorkerProcess.begin, WorkerProcess.results = watched_begin, watched_results


def compare(factory, plain_model: torch.nn.Module, rounds: int = ROUNDS) -> tuple[float, ...]:
    """Medians of: our round, the bare round, and shares of ours: nobody trains, a worker waits for
    the other, not training.

    The last is of the two workers' time, whatever the reason; it is about the sum of the other two.
    """
    span = Span()
    x, y = pixels()
    box = store(x, y, K, EXAMPLES)
    with LocalRuntime(box, factory, workers=2) as runtime:
        setting = settle(method(), runtime, seed=0)
        state, _ = prepare(setting)
        ours, theirs, besides, tail, idle = [], [], [], [], []
        for t in range(WARM_UP + rounds):
            span.first, span.ends, began = 0.0, [], time.perf_counter()
            state, record = play_round(setting, state)
            middle = time.perf_counter()
            shards = [bare.normalised(x, y, box.rows(c, "train")) for c in record.loss]
            start = time.perf_counter()
            bare.play_round(plain_model, shards, BATCH, LR)
            if t >= WARM_UP:
                theirs.append(time.perf_counter() - start)
                ours.append(middle - began)
                besides.append(1 - (max(span.ends) - span.first) / (middle - began))
                tail.append((max(span.ends) - statistics.mean(span.ends)) / (middle - began))
                idle.append(1 - sum(record.client_seconds.values()) / 2 / (middle - began))
    return tuple(statistics.median(numbers) for numbers in (ours, theirs, besides, tail, idle))


def mlp() -> torch.nn.Module:
    return models.build("mlp", (28, 28), 10)


def cnn() -> torch.nn.Module:
    return models.build("cnn_similarity", (28, 28), 10)


def main() -> int:
    torch.set_num_threads(1)
    figures = []
    cases = (
        ("MLP 784-200-200-10", mlp, bare.mlp(), 0.50),
        ("CNN of paper 002", cnn, bare.cnn(), 0.50),
        ("CNN, our module in both", cnn, cnn(), None),  # what the second core alone gives
    )
    for name, factory, plain, limit in cases:
        with threadpool_limits(1):  # as in a run
            ours, theirs, besides, tail, idle = compare(factory, plain)
        note = f"{1000 * ours:.1f} ms against {1000 * theirs:.1f} ms"
        figures.append(Figure(f"{name}: round / bare loop", ours / theirs, limit, note))
        figures.append(
            Figure(
                f"{name}: besides training",
                besides,
                limit and 0.10,
                "share of the round: no client trains",
            )
        )
        figures.append(
            Figure(
                f"{name}: one worker waits",
                tail,
                None,
                "share of worker time: the other core was slower",
            )
        )
        figures.append(
            Figure(f"{name}: not training", idle, None, "share of worker time, for whatever reason")
        )
    return report("Rounds (2 workers against 1 thread)", figures)


if __name__ == "__main__":
    sys.exit(main())
