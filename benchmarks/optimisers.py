"""What FedProx, SCAFFOLD and FedDyn cost beside plain SGD, and the memory of their client state.

The MLP set-up of rounds.py: K=100, m=10, 600 examples each, batch 64, one epoch, 2 workers. The
methods take turns round by round, so that a noisy machine hurts all of them; medians are printed.
Memory: rounds with K=10,000 clients, the state of the aggregation rule counted in arrays per client
that was ever chosen. Exit code 1 if a limit is missed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from fedskew import models
from fedskew.loop.federation import play_round, prepare, settle
from fedskew.recipe import method_of, resolve
from fedskew.runtime.local.runtime import LocalRuntime
from fedskew.runtime.local.store import Store
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import Layout
from rounds import BATCH, EXAMPLES, LR, K, M, pixels, store
from table import Figure, report

WARM_UP, ROUNDS = 3, 25
METHODS = {
    "plain SGD": ({}, None),
    "FedProx": ({"local": {"prox_mu": 0.01}}, 1.15),
    "SCAFFOLD": ({"aggregation": {"use": "scaffold"}}, 1.4),
    "FedDyn": ({"aggregation": {"use": "dyn", "alpha": 0.01}}, 1.4),
}
RUN = {"rounds": 10**6, "clients_per_round": M, "evaluate_every": 0}


def method(changes: Mapping[str, Mapping[str, object]]):
    local = {"batch": BATCH, "lr": LR, **changes.get("local", {})}
    return method_of(resolve({**changes, "local": local, "run": RUN}))


def round_times(
    methods: Mapping[str, tuple[Mapping[str, Mapping[str, object]], float | None]],
    box: Store,
    model: str,
    rounds: int,
    workers: int = 2,
) -> dict[str, list[float]]:
    """Seconds of each method's rounds, one round of each in turn."""
    shape = box.x.shape[1:]
    with LocalRuntime(box, lambda: models.build(model, shape, 10), workers=workers) as runtime:
        settings = {
            name: settle(method(changes), runtime, seed=0) for name, (changes, _) in methods.items()
        }
        states = {name: prepare(setting)[0] for name, setting in settings.items()}
        seconds: dict[str, list[float]] = {name: [] for name in methods}
        for t in range(WARM_UP + rounds):
            for name, setting in settings.items():
                began = time.perf_counter()
                states[name], _ = play_round(setting, states[name])
                if t >= WARM_UP:
                    seconds[name].append(time.perf_counter() - began)
    return seconds


def ratios(
    title: str,
    methods: Mapping[str, tuple[Mapping[str, Mapping[str, object]], float | None]],
    seconds: Mapping[str, list[float]],
) -> list[Figure]:
    """Every method's median round against the first's."""
    base = next(iter(methods))
    plain = statistics.median(seconds[base])
    note = f"median of {len(seconds[base])}"
    figures = [Figure(f"{title}{base}: round, ms", 1000 * plain, None, note)]
    for name, (_, limit) in list(methods.items())[1:]:
        median = statistics.median(seconds[name])
        paired = statistics.median(a / b for a, b in zip(seconds[name], seconds[base], strict=True))
        note = f"{1000 * median:.1f} ms; median of the ratios of neighbours {paired:.3f}"
        figures.append(Figure(f"{title}{name}: round / {base}", median / plain, limit, note))
    return figures


def array_bytes(value: object) -> int:
    """Bytes of every array in a rule's memory."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return sum(array_bytes(v) for v in value.values()) if isinstance(value, Mapping) else 0


def state_bytes(
    changes: Mapping[str, Mapping[str, object]], clients: int = 10_000, rounds: int = 10
) -> tuple[float, int, int]:
    """(bytes per client ever chosen, such clients, all bytes) of a rule's memory."""
    layout = Layout.of([("w", (199_210,), "weight")])
    setting = settle(
        method(changes), ScriptedRuntime(np.ones((clients, 2), np.int64), layout=layout), seed=0
    )
    state, _ = prepare(setting)
    for _ in range(rounds):
        state, _ = play_round(setting, state)
    chosen, size = int((state.times_selected > 0).sum()), array_bytes(state.memory["aggregation"])
    return size / chosen, chosen, size


def main() -> int:
    torch.set_num_threads(1)
    with threadpool_limits(1):  # as in a run
        seconds = round_times(METHODS, store(*pixels(), K, EXAMPLES), "mlp", ROUNDS)
    figures = ratios("", METHODS, seconds)
    for name in ("SCAFFOLD", "FedDyn"):
        each, chosen, size = state_bytes(METHODS[name][0])
        note = (
            f"{size / 1e6:.1f} MB for the {chosen} of 10,000 clients ever chosen; "
            f"a model has {4 * 199_210 / 1e6:.2f} MB"
        )
        figures.append(Figure(f"{name}: state per client ever chosen, MB", each / 1e6, None, note))
    return report("Optimisers (2 workers, MLP 784-200-200-10)", figures)


if __name__ == "__main__":
    sys.exit(main())
