"""Which part of FedLECC does the work: clusters, losses, or both? METHODS 11.3 on FMNIST, 100
clients, Dirichlet 0.055.

``python evidence/ablation.py`` (``make evidence-ablation``) trains every variant with three seeds
on both cores and writes ``results.json``, ``ablation.png`` and the page ``README.md`` into
``evidence/ablation``. Runs that are finished already are read, not repeated, so it can be stopped
at any moment. ``--epochs 5`` is the setting METHODS 11.1 assumes, five times as long.
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

from fedskew.accounting.participation import participation
from fedskew.experiment.run import Run
from fedskew.experiment.schedule import Job, run_all
from fedskew.recipe import fingerprint, load, override, resolve
from fedskew.report.figures.style import COLOURS, GREY, drawing, new_figure, title

HERE = Path(__file__).resolve().parent / "ablation"
FEDERATION = {
    "data.use": "fmnist",
    "data.clients": 100,
    "partition.use": "dirichlet",
    "partition.alpha": 0.055,
    "local.batch": 64,
    "local.lr": 0.005,
    "run.clients_per_round": 10,
}
VARIANTS: dict[str, dict[str, Any]] = {  # heading -> changes to the recipe fedlecc
    "FedLECC: clusters and clients by loss": {},
    "cluster only: random cluster, random client": {
        "selection.rank_clusters": "random",
        "selection.rank_clients": "random",
    },
    "loss only: the 10 largest losses": {"selection.rank_clusters": "ignore"},
    "clusters by loss, random client": {"selection.rank_clients": "random"},
    "random cluster, clients by loss": {"selection.rank_clusters": "random"},
    "noise: singletons": {"clustering.noise": "singletons"},
    "noise: one cluster": {"clustering.noise": "one"},
    "noise: dropped": {"clustering.noise": "drop"},
    "loss: exact (every client, every round)": {"selection.loss_source": "exact"},
    "loss: of the trained model (post)": {"selection.loss_source": "post"},
    "loss: 20 random clients asked (subset)": {"selection.loss_source": "subset"},
}


def recipes(epochs: int, rounds: int) -> dict[str, dict[str, Any]]:
    """FedAvg and every variant, all on the same federation."""
    shared = {**FEDERATION, "local.epochs": epochs, "run.rounds": rounds}
    return {
        "FedAvg: 10 random clients": resolve(override(load("fedavg"), shared)),
        **{
            name: resolve(override(load("fedlecc"), {**shared, **changes}))
            for name, changes in VARIANTS.items()
        },
    }


def train(
    variants: Mapping[str, Mapping[str, Any]], seeds: Sequence[int], folder: Path
) -> dict[str, list[Run]]:
    """Every variant with every seed; finished runs are read from their folders."""
    cells = {
        (name, seed): folder / f"{fingerprint(recipe)}-{seed}"
        for name, recipe in variants.items()
        for seed in seeds
    }
    jobs = [
        Job(variants[name], seed, str(out), resume=out.exists())
        for (name, seed), out in cells.items()
    ]
    rounds = dict.fromkeys(cells.values(), 0)

    def show(number: int, record: Any) -> None:
        rounds[Path(jobs[number].out)] = record.round
        if record.round % 50 == 0:
            print(
                f"{sum(rounds.values())} rounds of {sum(v['run']['rounds'] for v in variants.values()) * len(seeds)}",
                flush=True,
            )

    failed = [
        outcome
        for outcome in run_all(jobs, cores=len(os.sched_getaffinity(0)), on_round=show)
        if outcome.error
    ]
    if failed:
        raise SystemExit("\n".join(f"{outcome.job.out}: {outcome.error}" for outcome in failed))
    return {name: [Run.load(cells[name, seed]) for seed in seeds] for name in variants}


def figures(run: Run) -> dict[str, float]:
    """What is compared of one run."""
    summary, times = run.summary(), np.array(run.clients["times_selected"])
    last = np.zeros(len(times), np.int64)
    for record in run.rounds:
        last[[client for chain in record.chains for client in chain.clients]] = record.round
    found = participation(times, last, summary["rounds"])
    return {
        "last5": summary["final_accuracy"],
        "best": summary["best_accuracy"],
        "megabytes": (summary["bytes_down"] + summary["bytes_up"]) / 1e6,
        "jain": found.jain,
        "share_never": found.share_never,
    }


def tabulate(results: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """One line per variant; the difference to FedLECC is paired by seed."""
    lines = [
        "| variant | last 5 rounds | against FedLECC | best | MB | Jain | never chosen |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    columns = {
        name: {key: np.array([row[key] for row in rows]) for key in rows[0]}
        for name, rows in results.items()
    }
    base = columns[next(iter(VARIANTS))]["last5"]
    for name, found in columns.items():
        gap = found["last5"] - base
        against = "" if (gap == 0).all() else spread(gap, "+.3f")
        lines.append(
            f"| {name} | {spread(found['last5'])} | {against} | {found['best'].mean():.3f} "
            f"| {found['megabytes'].mean():,.0f} | {found['jain'].mean():.2f} | {found['share_never'].mean():.0%} |"
        )
    return "\n".join(lines)


def spread(values: np.ndarray, spec: str = ".3f") -> str:
    """Mean and standard deviation over seeds (ddof 1)."""
    return (
        f"{values.mean():{spec}} ± {values.std(ddof=1):.3f}"
        if len(values) > 1
        else f"{values.mean():{spec}}"
    )


def draw(results: Mapping[str, Sequence[Mapping[str, float]]], path: Path) -> None:
    """Every seed a dot, the mean a bar, one line per variant."""
    with drawing():
        figure = new_figure(8.0, 0.36 * len(results) + 1.2)
        axes = figure.subplots()
        for place, rows in enumerate(results.values()):
            values = [row["last5"] for row in rows]
            axes.plot(values, [place] * len(values), "o", color=COLOURS[0], markersize=5, alpha=0.8)
            axes.plot(
                [np.mean(values)] * 2, [place - 0.3, place + 0.3], color=COLOURS[3], linewidth=2
            )
        axes.axvline(
            np.mean([row["last5"] for row in results[next(iter(VARIANTS))]]),
            color=GREY,
            linewidth=1,
            zorder=0,
        )
        axes.set_yticks(range(len(results)), list(results))
        axes.invert_yaxis()
        axes.set_xlabel("accuracy, mean of the last five rounds")
        title(
            axes,
            "FedLECC taken apart",
            "FMNIST, 100 clients, Dirichlet 0.055; a dot is a seed, the bar their mean",
        )
        figure.savefig(path, dpi=150)


PAGE = """# FedLECC taken apart (METHODS 11.3)

`make evidence-ablation` ({facts}): FMNIST, 100 clients, Dirichlet 0.055 (Hellinger distance 0.90), the MLP of paper 000,
SGD 0.005, batches of 64, {epochs} local epoch(s), {rounds} rounds, 10 clients a round, J = 5, seeds {seeds}. Mean ± standard
deviation over seeds (ddof 1); "against FedLECC" is paired by seed.

{table}

![accuracy of every variant](ablation.png)

Bytes are unicast. Only one thing changes per line; everything else is the recipe `fedlecc` (noise to the nearest cluster,
losses that trained clients report). The paper gives no numbers for its ablation.
"""


def main() -> None:
    """Train what is missing, then write table, figure and page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    began, seeds = time.monotonic(), range(given.seeds)
    runs = train(recipes(given.epochs, given.rounds), seeds, Path("runs") / "ablation")
    results = {name: [figures(run) for run in of_seeds] for name, of_seeds in runs.items()}
    given.out.mkdir(exist_ok=True)
    (given.out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    draw(results, given.out / "ablation.png")
    facts = f"{(time.monotonic() - began) / 60:.0f} minutes on {len(os.sched_getaffinity(0))} cores"
    text = PAGE.format(
        table=tabulate(results),
        facts=facts,
        epochs=given.epochs,
        rounds=given.rounds,
        seeds=", ".join(map(str, seeds)),
    )
    (given.out / "README.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
