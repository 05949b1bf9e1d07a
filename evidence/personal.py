"""Personalised methods on ACSIncome with the rows they must be shown with: paper 004, Tables III
and IV and Fig 8 again.

``python evidence/personal.py`` plays 10 methods and 3 references on 6 partitions of 100 clients
with 5 seeds each (minutes on two cores) and writes ``results.json``, ``ecdf.png`` and the page
``README.md`` into ``evidence/personal``. All methods share one optimiser, partition, split, first
model and budget (METHODS 11.13: T = 40, half of the clients, E = 5, Adam 1e-3, B = 32); partition
and training seeds both vary. ``--seeds 1 --settings "S 0"`` plays a part.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent / "personal"
FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"
SEEDS = 5
SETTINGS: dict[str, dict[str, Any]] = {
    **{f"α {a:g}": {"partition.use": "dirichlet", "partition.alpha": a} for a in (50.0, 0.7, 0.3)},
    **{
        f"S {s:g}": {"partition.use": "similarity", "partition.similarity": s}
        for s in (1.0, 0.03, 0.0)
    },
}
COMMON = {
    "data.use": "acsincome",
    "data.clients": 100,
    "data.client_test": "split",
    "model.use": "logistic",
    "local.epochs": 5,
    "local.batch": 32,
    "local.lr": 0.001,
    "local.optimizer": "adam",
    "run.rounds": 40,
    "run.clients_per_round": 50,
    "run.evaluate_every": 0,
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {  # row -> recipe, what differs from it
    "FedAvg": ("fedavg", {}),
    "FedAvgM": ("fedavg", {"aggregation.use": "momentum", "aggregation.beta": 0.7}),
    "FedProx": ("fedavg", {"local.prox_mu": 0.01}),
    "HACCS": ("haccs", {"selection.rho": 0.95}),
    "CFL": ("cfl", {}),
    "FedSoft": ("fedsoft", {}),
    "IFCA": ("ifca", {}),
    "Clust-PSI-PFL": ("clust_psi_pfl", {}),
    "Clust-PSI-PFL, signed": ("clust_psi_pfl", {"distance.signed": True}),
    "local only": ("local_only", {}),
}
REFERENCES = {
    "fine_tuned": "fine-tuned FedAvg",
    "majority_class": "majority class",
    "centralised": "centralised",
}
ROWS = (*METHODS, *REFERENCES.values())
PAPER = {  # Table III accuracy | Table IV AD ± SDAD, where the paper gives them
    "FedAvg": {"α 0.3": (".64", ".43±.39"), "S 0": (".65", ".35±.44")},
    "FedAvgM": {"α 0.3": ("", ".43±.40"), "S 0": ("", ".35±.39")},
    "HACCS": {"α 0.3": (".72", ".32±.25"), "S 0": (".72", ".29±.34")},
    "CFL": {"α 0.3": (".76", ".27±.17"), "S 0": (".76", ".27±.28")},
    "FedSoft": {"α 0.3": (".75", ""), "S 0": (".74", "")},
    "Clust-PSI-PFL": {"α 0.3": (".90", ".17±.18"), "S 0": (".98", ".01±.02")},
}


# ---------------------------------------------------------------- playing


def play(setting: str, seed: int, folder: str) -> list[dict[str, Any]]:
    """Every row of one partition under one seed."""
    from fedskew import run
    from fedskew.experiment.references import reference_rows

    rows: list[dict[str, Any]] = []
    world = {**COMMON, "data.folder": folder, **SETTINGS[setting]}
    for name, (recipe, changes) in METHODS.items():
        began = time.process_time()
        result = run(recipe, seed=seed, workers=1, settings={**world, **changes})
        figures = result.summary()
        facts = {"models": figures["models"], "bytes": figures["bytes_down"] + figures["bytes_up"]}
        rows.append(
            row_of(setting, seed, name, result.fairness, result.clients["accuracy"], began) | facts
        )
        if name == "FedAvg":
            for reference in reference_rows(result):
                began = time.process_time()
                title = REFERENCES[reference.name]
                rows.append(
                    row_of(setting, seed, title, reference.fairness, reference.accuracy, began)
                )
    return rows


def row_of(
    setting: str, seed: int, name: str, figures: Any, accuracy: Any, began: float
) -> dict[str, Any]:
    """One row of ``results.json``."""
    seconds = round(time.process_time() - began, 2)
    values = [None if np.isnan(a) else round(float(a), 4) for a in accuracy]
    return {
        "setting": setting,
        "seed": seed,
        "method": name,
        "seconds": seconds,
        **figures.as_dict(),
        "accuracy": values,
    }


def play_all(settings: Sequence[str], seeds: int, folder: Path, cores: int) -> list[dict[str, Any]]:
    """All partitions and seeds, each core its own; a line per finished one."""
    os.environ["OMP_NUM_THREADS"] = "1"
    from fedskew.data import load

    load("acsincome", folder=folder)  # once, into the cache
    jobs = [(setting, seed, str(folder)) for seed in range(seeds) for setting in settings]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(play, *job): job for job in jobs}
        for number, done in enumerate(as_completed(waiting), start=1):
            rows += done.result()
            print(f"{number}/{len(jobs)}  {waiting[done][0]}, seed {waiting[done][1]}", flush=True)
    order = {(s, m): (i, j) for i, s in enumerate(settings) for j, m in enumerate(ROWS)}
    return sorted(rows, key=lambda r: (*order[r["setting"], r["method"]], r["seed"]))


# ---------------------------------------------------------------- figures over seeds


def interval(values: Sequence[float]) -> float:
    """Half the width of the 95 % confidence interval of the mean (Student's t, standard
    deviation with ddof 1).
    """
    from scipy.stats import t

    if len(values) < 2:
        return float("nan")
    return float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))


def summarise(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One entry per setting and method: means over seeds, intervals, and the paired difference
    to FedAvg.
    """
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["setting"], row["method"]), []).append(row)
    entries = []
    for (setting, method), mine in found.items():
        base = {row["seed"]: row["weighted"] for row in found[setting, "FedAvg"]}
        gains = [row["weighted"] - base[row["seed"]] for row in mine]
        entry: dict[str, Any] = {"setting": setting, "method": method, "seeds": len(mine)}
        for name in ("weighted", "ad", "sdad", "worst10", "jain"):
            values = [row[name] for row in mine]
            entry |= {name: float(np.mean(values)), f"{name}_interval": interval(values)}
        entry |= {"gain": float(np.mean(gains)), "gain_interval": interval(gains)}
        entry |= {"models": sorted({row["models"] for row in mine if "models" in row})}
        entries.append(entry)
    return entries


# ---------------------------------------------------------------- table, figure, page


def table(entries: Sequence[Mapping[str, Any]], settings: Sequence[str]) -> str:
    """Accuracy with its interval, AD ± SDAD below it."""
    by = {(e["setting"], e["method"]): e for e in entries}
    lines = ["| | " + " | ".join(settings) + " |", "|---|" + "---|" * len(settings)]
    for method in ROWS:
        cells = [_cell(by[setting, method]) for setting in settings]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(entry: Mapping[str, Any]) -> str:
    width = "" if np.isnan(entry["weighted_interval"]) else f" ± {entry['weighted_interval']:.3f}"
    return f"{entry['weighted']:.3f}{width}<br>{entry['ad']:.3f} ± {entry['sdad']:.3f}"


def paper_table() -> str:
    """What the paper prints for the two partitions of its Table IV."""
    lines = ["| paper 004 | α 0.3: accuracy, AD±SDAD | S 0: accuracy, AD±SDAD |", "|---|---|---|"]
    return "\n".join(
        [
            *lines,
            *(
                f"| {m} | {' , '.join(c['α 0.3'])} | {' , '.join(c['S 0'])} |"
                for m, c in PAPER.items()
            ),
        ]
    )


def draw(rows: Sequence[Mapping[str, Any]], settings: Sequence[str], path: Path) -> None:
    """Fig 8: the distribution of local accuracy over the clients of all seeds; references are
    grey.
    """
    from fedskew.accounting.fairness import ecdf
    from fedskew.report.figures.style import COLOURS, GREY, INK, SOFT, drawing, new_figure, title

    dashes: dict[str, tuple[str, str]] = {  # references: no colour
        "local only": ("--", INK),
        "fine-tuned FedAvg": ("-.", SOFT),
        "majority class": (":", INK),
        "centralised": ("-", GREY),
    }
    methods = [name for name in ROWS if name not in dashes]
    with drawing():
        figure = new_figure(2.0 + 4.2 * len(settings), 4.2)
        panels = np.atleast_1d(figure.subplots(1, len(settings), sharey=True))
        for axes, setting in zip(panels, settings, strict=True):
            for name in ROWS:
                mine = [
                    r["accuracy"] for r in rows if (r["setting"], r["method"]) == (setting, name)
                ]
                values, shares = ecdf(np.array(mine, np.float64))
                style, colour = dashes.get(
                    name, ("-", COLOURS[methods.index(name)] if name in methods else INK)
                )
                width = 2.6 if name == "Clust-PSI-PFL" else 1.8 if name in dashes else 1.2
                steps = [0, *values, 1], [0, *shares, 1]
                axes.step(
                    *steps, where="post", label=name, color=colour, linestyle=style, linewidth=width
                )
            axes.set_xlabel("accuracy a on the client's own test set")
            axes.set_xlim(0, 1.005)
            title(axes, setting)
        panels[0].set_ylabel("share of clients with accuracy ≤ a (lower is better)")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center")
        figure.savefig(path, dpi=150)


PAGE = """# Personalised methods on ACSIncome (paper 004, Tables III and IV, Fig 8)

`python evidence/personal.py` ({seconds:.0f} s on {cores} cores, {runs} runs): {seeds} seeds, 100 clients, logistic
regression, 40 rounds, half of the clients a round, 5 epochs of Adam 1e-3 on batches of 32, every client tested on a fifth of
its own rows. 90,636 people of 14 states, not the paper's 1,664,500. First line: accuracy weighted by test examples ± half a
95 % confidence interval over seeds. Second line: AD ± SDAD, means over seeds. The last four rows are references: no
federation, no personalised method, or no training at all.

{table}

{paper}

Number of models at the end: {models}.

[Why the number of models varies, and why HACCS is no better than FedAvg](WHY.md).

![Distribution of local accuracy](ecdf.png)
"""


def page(
    rows: Sequence[Mapping[str, Any]],
    entries: Sequence[Mapping[str, Any]],
    settings: Sequence[str],
    facts: Any,
) -> str:
    """The README."""
    counts = [
        f"{e['method']} at {e['setting']}: {', '.join(map(str, e['models']))}"
        for e in entries
        if e["method"] in ("CFL", "Clust-PSI-PFL", "Clust-PSI-PFL, signed")
    ]
    runs = sum("models" in row for row in rows)
    filled = {
        "table": table(entries, settings),
        "paper": paper_table(),
        "models": "; ".join(counts),
        "runs": runs,
    }
    return PAGE.format(**filled, **facts)


def main() -> None:
    """Play, summarise, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where acsincome*.parquet lies")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=HERE)
    chosen = parser.parse_args()
    began = time.perf_counter()
    rows = play_all(chosen.settings, chosen.seeds, chosen.folder, chosen.cores)
    seconds = time.perf_counter() - began
    entries = summarise(rows)
    chosen.out.mkdir(parents=True, exist_ok=True)
    content = {"summary": entries, "runs": rows}
    text = json.dumps(content, ensure_ascii=False, indent=None, separators=(",", ":")).replace(
        "},{", "},\n{"
    )
    (chosen.out / "results.json").write_text(text.replace("NaN", "null") + "\n", encoding="utf8")
    shown = [s for s in ("α 0.3", "S 0") if s in chosen.settings] or chosen.settings[:2]
    draw(rows, shown, chosen.out / "ecdf.png")
    facts = {"seconds": seconds, "cores": chosen.cores, "seeds": chosen.seeds}
    (chosen.out / "README.md").write_text(
        page(rows, entries, chosen.settings, facts), encoding="utf8"
    )
    print(table(entries, chosen.settings).replace("<br>", "  "))
    print(f"{seconds:.0f} s; written to {chosen.out}")


if __name__ == "__main__":
    main()
