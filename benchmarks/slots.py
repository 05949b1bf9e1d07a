"""Ten models instead of one: a round with ten clusters against one with as many trainings.

100 clients of 600 examples, ten of each class; 20 train in every round: two of each cluster, or
twenty of one. All models of a round train in one pass over the workers, so only copying and merging
ten models is left to cost anything. The two sides take turns round by round; medians; no
evaluation. Exit code 1 if the limit of issue 6 is missed.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from fedskew import models
from fedskew.loop.federation import play_round, prepare, settle
from fedskew.loop.method import Setting
from fedskew.recipe import method_of, resolve
from fedskew.runtime.local.runtime import LocalRuntime
from fedskew.types import State
from rounds import EXAMPLES, K, pixels, store
from table import Figure, report

WARM_UP, ROUNDS, LIMIT = 2, 11, 1.2


def setting_of(runtime: LocalRuntime, clusters: int) -> Setting:
    recipe = {
        "signal": {"use": "histogram"},
        "distance": {"use": "hellinger"},
        "clustering": {"use": "kmeans", "count": clusters},
        "selection": {"use": "stratified", "fraction": 0.2},
        "procedure": {"use": "per_cluster"},
        "local": {"batch": 64, "lr": 0.005},
        "run": {"rounds": 10**6, "clients_per_round": 20, "evaluate_every": 0},
    }
    return settle(method_of(resolve(recipe)), runtime, 0)


def one_class_each():
    """Clients 0..9 own class 0, and so on; a client that would run short takes what comes next."""
    x, y = pixels()
    made = store(x, y, K, EXAMPLES)
    order = np.argsort(y, kind="stable")[: K * EXAMPLES]
    tests = np.arange(100)
    return replace(made, train_order=order, test_order=tests, test_offsets=np.arange(K + 1))


def ratio(workers: int) -> Figure:
    with LocalRuntime(
        one_class_each(), lambda: models.build("mlp", (28, 28), 10), workers=workers
    ) as runtime:
        sides = {clusters: setting_of(runtime, clusters) for clusters in (1, 10)}
        states: dict[int, State] = {
            clusters: prepare(setting)[0] for clusters, setting in sides.items()
        }
        times: dict[int, list[float]] = {1: [], 10: []}
        for _ in range(WARM_UP + ROUNDS):
            for clusters, setting in sides.items():
                began = time.perf_counter()
                states[clusters], record = play_round(setting, states[clusters])
                times[clusters].append(time.perf_counter() - began)
                assert len(record.chains) == 20
        assert len(states[10].models) == 10
    one, ten = (statistics.median(times[clusters][WARM_UP:]) for clusters in (1, 10))
    note = f"{1000 * ten:.0f} ms against {1000 * one:.0f} ms"
    return Figure(f"784-200-200-10, {workers} workers: 10 clusters / 1", ten / one, LIMIT, note)


if __name__ == "__main__":
    with threadpool_limits(1):  # as in a run
        sys.exit(report("model slots", [ratio(workers) for workers in (1, 2)]))
