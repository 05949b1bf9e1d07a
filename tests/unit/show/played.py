"""Run folders of any size, written in milliseconds: nobody trains."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedskew.recipe import resolve
from fedskew.records import Labels, RunFolder
from fedskew.types import Chain, Cost, Layout, RoundRecord, Transfer

LAYOUT = Layout.of([("weight", (2, 2), "weight"), ("bias", (2,), "weight")])


def recipe(name: str = "fedavg", *, clients: int = 12, rounds: int = 6, budget: int = 3, **tables):
    raw = {
        "name": name,
        "data": {"use": "digits", "clients": clients},
        "partition": {"use": "dirichlet", "alpha": 0.3},
    }
    return resolve({**raw, "run": {"rounds": rounds, "clients_per_round": budget}, **tables})


def counts_of(clients: int, classes: int, seed: int) -> np.ndarray:
    """Skewed label counts, the same for every method under one seed."""
    shares = np.random.default_rng(seed).dirichlet(np.full(classes, 0.3), clients)
    return np.maximum(
        np.round(60 * shares).astype(np.int64),
        (shares == shares.max(axis=1, keepdims=True)).astype(np.int64),
    )


def record(
    t: int,
    chosen: np.ndarray,
    level: float,
    rng: np.random.Generator,
    chain: int,
    failing: str,
    personal: bool = False,
) -> RoundRecord:
    if not t:
        return RoundRecord(
            0,
            (),
            {},
            {},
            (Transfer("up", "histogram", 480, 480),),
            0.1,
            2.3,
            0.01,
            {},
            Cost(0.0, 0.0),
        )
    ids = chosen.tolist()
    chains = tuple(Chain(0, tuple(ids[i : i + chain])) for i in range(0, len(ids), chain))
    moved = (
        Transfer("down", "model", 9640 * len(chains), 9640),
        Transfer("up", "model", 9640 * len(ids), 9640 * len(ids)),
    )
    accuracy = float(min(0.99, level * (1 - np.exp(-t / 12)) + rng.normal(0, 0.01)))
    losses = {client: float(rng.uniform(0.1, 2)) for client in ids}
    failures = {ids[0]: failing} if failing and t % 3 == 0 else {}
    return RoundRecord(
        t,
        chains,
        losses,
        failures,
        moved,
        np.nan if personal else accuracy,
        np.nan if personal else 2 - accuracy,
        0.02,
        {},
        Cost(1.5 + 0.1 * t, 40.0),
        client_accuracy=accuracy if personal else np.nan,
    )


def write_run(
    folder: Path,
    name: str = "fedavg",
    seed: int = 0,
    *,
    clients: int = 12,
    rounds: int = 6,
    budget: int = 3,
    classes: int = 10,
    level: float = 0.9,
    chain: int = 1,
    names: list[str] | None = None,
    failing: str = "",
    until: int | None = None,  # leave the run unfinished after this round
    cluster: bool = False,
    personal: bool = False,  # several models, none of them global
    mark: str = "",  # runs of one mark are the same whatever their name
    **tables,
) -> Path:
    """A run folder as fedskew writes it."""
    resolved = recipe(name, clients=clients, rounds=rounds, budget=budget, **tables)
    rng = np.random.default_rng([seed, len(mark or name), round(100 * level)])
    counts = counts_of(clients, classes, seed)
    out = RunFolder(folder, resolved, seed)
    out.begin({})
    out.keep_labels(Labels(counts, [str(c) for c in range(classes)], names or ()))
    times = np.zeros(clients, np.int64)
    for t in range(rounds + 1 if until is None else until + 1):
        chosen = rng.permutation(clients)[:budget]
        times[chosen] += t > 0
        out.append(record(t, chosen, level, rng, chain, failing, personal))
    if until is None:
        columns = {
            "client": list(range(clients)),
            "examples": counts.sum(axis=1).tolist(),
            "times_selected": times.tolist(),
            **({"cluster": counts.argmax(axis=1).tolist()} if cluster else {}),
            "test_examples": [5] * clients,
            "accuracy": np.clip(rng.normal(level, 0.1, clients), 0, 1).tolist(),
        }
        out.finish(
            np.zeros((1, LAYOUT.size), np.float32), LAYOUT, columns, {"name": name, "seed": seed}
        )
    out.close()
    return folder
