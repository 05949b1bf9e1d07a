"""Who trains, and in what order: six methods on the same clients, in accuracy, bytes, simulated
time and energy (issue 5).

``python evidence/orders.py`` plays FedAvg, FedLECC, Power-of-Choice, BACSA, FedSeQ and
``balanced_chains`` on Fashion-MNIST, 100 clients by Dirichlet(0.055), 10 a round, 150 rounds, three
seeds, all with one and the same local setting, and writes ``results.json``, ``orders.png`` and the
page ``README.md`` into ``evidence/orders``. Run folders lie in ``runs/orders``; a second call goes
on where the first was stopped. ``--rounds`` and ``--seeds`` make it shorter; ``--out`` writes
elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.accounting.traffic import total_bytes
from fedskew.experiment.run import Run
from fedskew.experiment.schedule import Job, run_all
from fedskew.recipe import load, override, resolve
from fedskew.report.figures.style import COLOURS, drawing, new_figure, title, with_commas
from fedskew.types import RoundRecord

HERE = Path(__file__).resolve().parent / "orders"
METHODS = {  # recipe -> name, and the rough sketch outside the project that the issue quotes
    "fedavg": ("FedAvg", 0.69),
    "fedlecc": ("FedLECC", 0.64),
    "poc": ("POC", 0.72),
    "bacsa": ("BACSA", 0.75),
    "fedseq": ("FedSeQ", None),
    "balanced_chains": ("balanced chains", 0.79),
}
# METHODS 11.1, but E = 1; only who trains, in what order and how models are averaged differs
SETTINGS: dict[str, Any] = {
    "data.use": "fmnist",
    "data.clients": 100,
    "partition.use": "dirichlet",
    "partition.alpha": 0.055,
    "model.use": "mlp",
    "model.hidden": [200, 200],
    "model.head_init": "default",
    "local.epochs": 1,
    "local.batch": 64,
    "local.lr": 0.005,
    "local.momentum": 0.0,
    "local.weight_decay": 0.0,
    "run.clients_per_round": 10,
    "run.checkpoint_seconds": 30.0,
}
COLUMNS = {  # figure -> heading, format, factor
    "last5": ("last 5 rounds", ".3f", 1.0),
    "best": ("best", ".3f", 1.0),
    "megabytes": ("MB in all", ",.0f", 1.0),
    "seconds": ("simulated h", ".2f", 1 / 3600),
    "joules": ("Wh", ".1f", 1 / 3600),
}


def spent(record: RoundRecord) -> tuple[float, float]:
    """Simulated seconds and modelled joules of one round."""
    return record.cost.seconds, record.cost.joules


def play(rounds: int, seeds: int, folder: Path, cores: int) -> list[dict[str, Any]]:
    """Every method under every seed: two methods under one seed have the same clients, first
    model and batch orders.
    """
    jobs, cells = [], []
    for seed in range(seeds):
        for recipe in METHODS:
            out = folder / f"{recipe}-seed{seed}-rounds{rounds}"
            raw = resolve(override(load(recipe), {**SETTINGS, "run.rounds": rounds}))
            jobs.append(Job(raw, seed, str(out), resume=out.is_dir()))
            cells.append({"recipe": recipe, "seed": seed})
    outcomes = run_all(jobs, cores, lambda job, record: report(jobs[job].out, record))
    for cell, outcome in zip(cells, outcomes, strict=True):
        if outcome.summary is None:
            raise SystemExit(outcome.error)
        cell |= figures(Run.load(outcome.job.out).rounds)
    return cells


def report(out: str, record: RoundRecord) -> None:
    """A sign of life every ten rounds."""
    if record.round % 10 == 0:
        print(f"{out}: round {record.round} {record.accuracy:.3f}", flush=True)


def figures(records: Sequence[RoundRecord]) -> dict[str, Any]:
    """Of one run: accuracy by round, simulated seconds up to each round, and the totals; round 0
    (probe, histograms) counts.
    """
    curve, costs = (
        [record.accuracy for record in records],
        np.array([spent(record) for record in records]),
    )
    transfers = [transfer for record in records for transfer in record.transfers]
    return {
        "last5": float(np.mean(curve[-5:])),
        "best": max(curve),
        "megabytes": sum(total_bytes(transfers, way) for way in ("down", "up", "d2d")) / 1e6,
        "bytes": {way: total_bytes(transfers, way) for way in ("down", "up", "d2d")},
        "seconds": float(costs[:, 0].sum()),
        "joules": float(costs[:, 1].sum()),
        "curve": curve,
        "clock": np.cumsum(costs[:, 0]).tolist(),
    }


# ---------------------------------------------------------------- figure and page


def of(cells: Sequence[Mapping[str, Any]], recipe: str, key: str) -> Any:
    """One figure of a method, a row per seed."""
    return np.array([cell[key] for cell in cells if cell["recipe"] == recipe])


def draw(cells: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Accuracy by round and by simulated time, mean over seeds, running mean of 5 rounds."""
    with drawing():
        figure = new_figure(9.0, 3.6)
        by_round, by_time = figure.subplots(1, 2, sharey=True)
        for (recipe, (name, _)), colour in zip(METHODS.items(), COLOURS, strict=False):
            curve, clock = (
                of(cells, recipe, "curve").mean(axis=0),
                of(cells, recipe, "clock").mean(axis=0),
            )
            width = 5 if len(curve) > 20 else 1
            smooth, first = (
                np.convolve(curve, np.ones(width) / width, mode="valid"),
                max(width - 1, 1),
            )
            # not round 0: nothing was trained, and its time may be 0
            shown = smooth[first - width + 1 :]
            by_round.plot(
                np.arange(first, len(curve)), shown, color=colour, linewidth=1.4, label=name
            )
            by_time.plot(clock[first:], shown, color=colour, linewidth=1.4)
        title(by_round, "by round", "test accuracy, mean over seeds and 5 rounds")
        title(by_time, "by simulated time", "1 ms an example, 10 Mbit/s, logarithmic")
        by_time.set_xscale("log")
        by_time.xaxis.set_major_formatter(with_commas)
        by_time.xaxis.set_minor_formatter("")
        by_round.set_xlabel("round")
        by_time.set_xlabel("simulated seconds")
        by_round.legend(loc="lower right")
        figure.savefig(path, dpi=150)


def table(cells: Sequence[Mapping[str, Any]]) -> str:
    """One line per method: mean over seeds, for accuracies with their standard deviation (ddof
    1).
    """
    lines = [
        "| method | " + " | ".join(heading for heading, _, _ in COLUMNS.values()) + " | sketch |"
    ]
    lines.append("|---|" + "---:|" * (len(COLUMNS) + 1))
    for recipe, (name, sketch) in METHODS.items():
        texts = []
        for key, (_, spec, factor) in COLUMNS.items():
            values = of(cells, recipe, key) * factor
            deviation = (
                f" ± {values.std(ddof=1):{spec}}"
                if key in ("last5", "best") and len(values) > 1
                else ""
            )
            texts.append(f"{values.mean():{spec}}{deviation}")
        lines.append(
            f"| {name} | " + " | ".join(texts) + f" | {'' if sketch is None else sketch} |"
        )
    return "\n".join(lines)


def verdict(cells: Sequence[Mapping[str, Any]]) -> str:
    """How each method does against FedAvg and the sketch, seed by seed."""
    base, lines = of(cells, "fedavg", "last5"), []
    for recipe, (name, sketch) in METHODS.items():
        if recipe == "fedavg":
            continue
        gains = of(cells, recipe, "last5") - base
        told = f"- {name}: {gains.mean():+.3f} against FedAvg, better in {int((gains > 0).sum())} of {len(gains)} seeds"
        lines.append(told + ("." if sketch is None else f"; the sketch had {sketch - 0.69:+.2f}."))
    return "\n".join(lines)


TEXT = """# Who trains, and in what order

`make evidence-orders` ({minutes:.0f} minutes on {cores} cores): Fashion-MNIST, Dirichlet(0.055), 100 clients, 10 a round,
{rounds} rounds, {seeds} seed(s), the MLP of paper 000 (199,210 weights), one epoch of SGD 0.005 in batches of 64. Every method
has the same clients, first model and batch orders under one seed; what differs is who trains, in what order, and, as its
paper says, whether models are averaged by examples or alike (POC: alike).

![accuracy by round and by simulated time](orders.png)

{table}

Mean over seeds ± standard deviation (ddof 1). `MB in all` is down, up and device to device, the probe of BACSA and the
histograms of FedLECC included; so are the simulated time (1 ms an example, links of 10 Mbit/s) and the energy (30 W while
computing, 1 W while sending). FedSeQ is ten random clients in one chain through the server. `sketch` is what a rough
three-seed sketch outside this project gave for the last five rounds; BACSA there is "balanced selection".

{verdict}

BACSA and balanced chains estimate the label mixes from a probe (`signal = "estimated"`), FedLECC is told the histograms.
"""


def main() -> None:
    """Play, print, save, draw, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    began = time.monotonic()
    cells = play(given.rounds, given.seeds, Path("runs/orders"), given.cores)
    how = {
        "rounds": given.rounds,
        "seeds": given.seeds,
        "cores": given.cores,
        "minutes": (time.monotonic() - began) / 60,
    }
    print(table(cells))
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "results.json").write_text(
        json.dumps({**how, "cells": cells}, indent=1) + "\n", encoding="utf-8"
    )
    draw(cells, given.out / "orders.png")
    (given.out / "README.md").write_text(
        TEXT.format(table=table(cells), verdict=verdict(cells), **how), encoding="utf-8"
    )
    print(given.out / "README.md")


if __name__ == "__main__":
    main()
