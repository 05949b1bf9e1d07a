"""AFLS on CIFAR-10: which procedure it chooses, and what both procedures reach, by round and by
simulated time (METHODS 11.9).

``python evidence/afls.py`` deals CIFAR-10 to 10 devices with k = 2, 5 and 10 classes each, plays
the recipes ``fedtra`` and ``fedseq`` on them, once with turns of an epoch and once with turns of
five batches, and writes ``results.json``, two figures and the page ``README.md`` into
``evidence/afls``. Run folders lie in ``runs/afls``; a second call goes on where the first was
stopped. ``--rounds``, ``--short-rounds``, ``--seeds`` and ``--size`` (examples per device, 0 = all)
make it shorter, ``--lr`` changes the learning rate, ``--out`` writes elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.accounting.devices import Devices, draw_population
from fedskew.experiment.run import Run
from fedskew.experiment.schedule import Job, run_all
from fedskew.experiment.world import dataset_of, shards_of
from fedskew.loop.federation import run, settle
from fedskew.recipe import load, method_of, override, resolve
from fedskew.report.figures.style import COLOURS, GREY, drawing, new_figure, title
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import RoundRecord

HERE = Path(__file__).resolve().parent / "afls"
DEVICES, CLASSES, REQUIRED = 10, (2, 5, 10), 0.6
# examples of a turn (0 = all): one pass over the device's data, or five batches of 32
TURNS = {"epoch": 0, "batches": 160}
EVERY = {"epoch": 1, "batches": 10}  # rounds between two tests
COMPUTE_SECONDS, MESSAGE_SECONDS = 1.0, 0.276  # T_c and T_m = T_x of METHODS 6.5
RECIPES = {"parallel": "fedtra", "sequential": "fedseq", "d2d": "fedseq_d2d"}
# FedSeQ-D2D has the curve of FedSeQ bit for bit, on another clock
PLAYED = ("parallel", "sequential")
WAYS = {"parallel": "FedTrA", "sequential": "FedSeQ", "d2d": "FedSeQ-D2D"}


def settings(k: int, rounds: int, size: int, lr: float, turn: str = "epoch") -> dict[str, Any]:
    """The world of METHODS 11.9; E, B and the momentum stand in the recipes."""
    return {
        "data.use": "cifar10",
        "data.clients": DEVICES,
        "model.use": "cnn_lenet",
        "partition.classes_per_client": k,
        "partition.size": size // k * k,
        "local.lr": lr,
        "local.max_examples": TURNS[turn],
        "devices.compute_seconds": COMPUTE_SECONDS,
        "devices.message_seconds": MESSAGE_SECONDS,
        "run.rounds": rounds,
        "run.clients_per_round": DEVICES,
        "run.evaluate_every": EVERY[turn],
        "run.checkpoint_seconds": 30.0,
    }


@cache
def round_seconds(way: str) -> float:
    """What the clock says of one round of a recipe, equal devices with links of their own.
    Nothing is trained for that.
    """
    resolved = resolve(override(load(RECIPES[way]), settings(DEVICES, 1, 0, lr=0.01)))
    counts = np.full((DEVICES, 10), 100)
    means = draw_population(counts.sum(axis=1), Devices(**resolved["devices"]), 0)
    *_, (_, record) = run(settle(method_of(resolved), ScriptedRuntime(counts, population=means), 0))
    return float(record.cost.seconds)


def choose(k: int, size: int, seed: int) -> dict[str, Any]:
    """What the recipe ``afls`` does with these label counts, and its omega. Nothing is trained
    for that.
    """
    resolved = resolve(override(load("afls"), settings(k, 1, size, lr=0.01)))
    shards = shards_of(resolved, dataset_of(resolved), seed)
    counts = np.stack([np.bincount(shards.y[rows], minlength=10) for rows in owned(shards.train)])
    *_, (state, record) = run(settle(method_of(resolved), ScriptedRuntime(counts), seed))
    return {
        "omega": max(0.0, state.memory["procedure"]["omega"]),
        "choice": way_of(record),
        "examples": int(counts[0].sum()),
    }


def owned(train: Any) -> list[Any]:
    """Row numbers of every device."""
    return np.split(train.order, train.offsets[1:-1])


def way_of(record: RoundRecord) -> str:
    """The procedure of a round."""
    return "d2d" if len(record.chains) == 1 else "parallel"


def figures(rounds: Sequence[int], curve: Sequence[float], way: str) -> dict[str, Any]:
    """Of one accuracy curve, round 0 first: its end, its best, when it got to the required
    accuracy (None = never).
    """
    smooth = np.convolve(curve[1:], np.ones(5) / 5, mode="valid")
    hit = next((t for t, accuracy in zip(rounds, curve, strict=True) if accuracy >= REQUIRED), None)
    return {
        "last5": float(np.mean(curve[-5:])),
        "best": max(curve),
        "best_of_5": float(smooth.max()) if len(smooth) else None,
        "round_to_required": hit,
        "seconds_to_required": None if hit is None else hit * round_seconds(way),
        "seconds": rounds[-1] * round_seconds(way),
    }


# ---------------------------------------------------------------- playing


def play(
    rounds: Mapping[str, int], seeds: int, size: int, lr: float, folder: Path, cores: int
) -> list[dict[str, Any]]:
    """Every turn, k, seed and procedure; sequential runs use one core each, so whole runs share
    the cores.
    """
    jobs, cells = [], []
    for turn, seed, k, way in product(TURNS, range(seeds), CLASSES, PLAYED):
        recipe = RECIPES[way]
        out = folder / f"{recipe}-{turn}-k{k}-seed{seed}-rounds{rounds[turn]}-size{size}-lr{lr:g}"
        raw = resolve(override(load(recipe), settings(k, rounds[turn], size, lr, turn)))
        jobs.append(Job(raw, seed, str(out), resume=out.is_dir()))
        cells.append({"turn": turn, "k": k, "seed": seed, "way": way})

    def say(job: int, record: RoundRecord) -> None:
        if not np.isnan(record.accuracy):
            print(f"{jobs[job].out}: round {record.round} {record.accuracy:.3f}", flush=True)

    outcomes = run_all(jobs, cores, say)
    for cell, outcome in zip(cells, outcomes, strict=True):
        if outcome.summary is None:
            raise SystemExit(outcome.error)
        finished = Run.load(outcome.job.out)
        cell["rounds"], cell["curve"] = zip(*finished.evaluations, strict=True)
        assert np.allclose(
            [record.cost.seconds for record in finished.rounds[1:]], round_seconds(cell["way"])
        )
    d2d = [{**cell, "way": "d2d"} for cell in cells if cell["way"] == "sequential"]
    return [{**cell, **figures(cell["rounds"], cell["curve"], cell["way"])} for cell in cells + d2d]


# ---------------------------------------------------------------- figure and page


def draw(
    cells: Sequence[Mapping[str, Any]], chosen: Mapping[int, Mapping[str, Any]], path: Path
) -> None:
    """One column per k: accuracy by round above, by simulated time below, means over seeds;
    AFLS's choice is the thick line.
    """
    with drawing():
        figure = new_figure(9.0, 5.2)
        panels = figure.subplots(2, len(CLASSES), sharey=True)
        for column, k in enumerate(CLASSES):
            for (way, name), colour in zip(WAYS.items(), COLOURS[:1] + COLOURS[2:4], strict=True):
                found = [cell for cell in cells if (cell["k"], cell["way"]) == (k, way)]
                rounds, curve = (
                    np.array(found[0]["rounds"]),
                    np.mean([cell["curve"] for cell in found], axis=0),
                )
                if way != "d2d":
                    panels[0, column].plot(rounds, curve, color=colour, linewidth=1.4, label=name)
                thick = 2.6 if chosen[k]["choice"] == way else 1.0
                panels[1, column].plot(
                    rounds * round_seconds(way), curve, color=colour, linewidth=thick, label=name
                )
            for axes in panels[:, column]:
                axes.axhline(REQUIRED, color=GREY, linewidth=1.0, zorder=0)
            title(
                panels[0, column],
                f"{k} classes each",
                f"ω = {chosen[k]['omega']:.2f}, AFLS: {WAYS[chosen[k]['choice']]}",
            )
            panels[0, column].set_xlabel("round")
            panels[1, column].set_xlabel("simulated seconds")
        panels[0, 0].set_ylabel("accuracy")
        panels[1, 0].set_ylabel("accuracy")
        panels[1, -1].legend(loc="lower right")
        figure.savefig(path, dpi=150)


def page(
    cells: Sequence[Mapping[str, Any]],
    chosen: Mapping[int, Mapping[str, Any]],
    how: Mapping[str, Any],
) -> str:
    """The README."""
    tables = {
        turn: table([cell for cell in cells if cell["turn"] == turn], chosen) for turn in TURNS
    }
    return TEXT.format(**tables, examples=chosen[CLASSES[0]]["examples"], **how)


def table(cells: Sequence[Mapping[str, Any]], chosen: Mapping[int, Mapping[str, Any]]) -> str:
    """A row per k and procedure."""
    lines = ["| k | ω | AFLS | procedure | last 5 | best | seconds to 0.6 | seconds in all |"]
    lines.append("|---:|---:|---|---|---:|---:|---:|---:|")
    for k in CLASSES:
        for way, name in WAYS.items():
            found = [cell for cell in cells if (cell["k"], cell["way"]) == (k, way)]
            mark = "**chosen**" if chosen[k]["choice"] == way else ""
            last, best, seconds = (
                np.mean([cell[key] for cell in found]) for key in ("last5", "best", "seconds")
            )
            line = f"| {k} | {chosen[k]['omega']:.3f} | {mark} | {name} | {last:.3f} | {best:.3f} |"
            lines.append(f"{line} {time_text(found)} | {seconds:.0f} |")
    return "\n".join(lines)


def time_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Mean over the seeds that got there; how many did not is said, never averaged in."""
    hits = [
        cell["seconds_to_required"] for cell in found if cell["seconds_to_required"] is not None
    ]
    missed = len(found) - len(hits)
    if not hits:
        return f">{found[0]['seconds']:.0f}"
    return f"{np.mean(hits):.0f}" + (f" ({missed} of {len(found)} never)" if missed else "")


TEXT = """# AFLS on CIFAR-10 (paper 003, Figs 2 and 5)

`make evidence-afls` ({minutes:.0f} minutes on {cores} cores): 10 devices with k classes each and {examples} examples, LeNet
(62,006 weights), batches of 32, SGD {lr:g} with momentum 0.9 that starts afresh at every device, {seeds} seed(s). Reduced
against METHODS 11.9, which asks for all 5,000 examples, 100 rounds, 3 seeds and five values of k. θ = 8.5 at ε = 1e-6;
times are those of the simulated clock with T_c = 1, T_m = 0.276 (METHODS 6.5).

The paper says neither its CNN nor how long a device's turn is. Both readings are played: a turn of one epoch (METHODS' choice)
and a turn of five batches (the paper explains the sequential procedure as training on "partitions of the whole data", batch by
batch).

## A turn is an epoch ({rounds} rounds)

![accuracy by round and by simulated time](curves-epoch.png)

{epoch}

## A turn is five batches ({short_rounds} rounds)

![accuracy by round and by simulated time](curves-batches.png)

{batches}

`last 5` is the mean accuracy of the last five tests, `seconds to 0.6` the simulated time of the first test at the required
accuracy of the paper, `>` if it was never reached. A turn takes T_c = 1 in both tables, so their times cannot be compared with
each other. FedSeQ and FedSeQ-D2D give the same models bit for bit (`tests/parity/test_procedures.py`); only their clocks
differ. The thick line in the lower row is the procedure AFLS chose: it looks at label counts only and knows nothing of turns.

[What the committed run says](READING.md), in words.
"""


def main() -> None:
    """Choose, play, save, draw, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="with turns of an epoch")
    parser.add_argument("--short-rounds", type=int, default=400, help="with turns of five batches")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--size", type=int, default=2000, help="examples per device, 0 = all")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    began = time.monotonic()
    chosen = {k: choose(k, given.size, 0) for k in CLASSES}
    for k, found in chosen.items():
        print(f"k = {k}: omega = {found['omega']:.3f}, AFLS chooses {WAYS[found['choice']]}")
    rounds = {"epoch": given.rounds, "batches": given.short_rounds}
    cells = play(rounds, given.seeds, given.size, given.lr, Path("runs/afls"), given.cores)
    how = {
        name: getattr(given, name) for name in ("rounds", "short_rounds", "seeds", "lr", "cores")
    }
    how["minutes"] = (time.monotonic() - began) / 60
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "results.json").write_text(
        json.dumps({**how, "chosen": chosen, "cells": cells}, indent=1) + "\n"
    )
    for turn in TURNS:
        draw(
            [cell for cell in cells if cell["turn"] == turn],
            chosen,
            given.out / f"curves-{turn}.png",
        )
    (given.out / "README.md").write_text(page(cells, chosen, how), encoding="utf-8")
    print(given.out / "README.md")


if __name__ == "__main__":
    main()
