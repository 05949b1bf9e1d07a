"""How well a short probe reveals the clients' label mixes: METHODS 8.3 again, then on Fashion-MNIST
and CIFAR-10.

``python evidence/estimation.py`` runs everything (about 17 minutes of one core) and writes
``results.csv``, ``results.json`` and the page ``README.md`` into ``evidence/estimation``.
``--quick`` runs the digits cells with one seed and writes into ``runs/estimation-quick`` (seconds);
``--page`` only writes the page again from ``results.json``. The words of the page that are not
numbers are in ``reading.md``; what a cell is and how it is measured in ``measurement.py`` beside
it.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

HERE = Path(__file__).resolve().parent / "estimation"
sys.path.insert(0, str(HERE))  # the folder cannot be a package: this file already has its name

from measurement import EPOCH_SECONDS, ESTIMATORS, FIGURES, NETWORKS, Cell, cells, run_cell  # noqa: E402
from page import write_page  # noqa: E402


def run_all(chosen: Sequence[Cell]) -> list[dict[str, Any]]:
    """Every cell and seed under a progress bar; one row per cell and estimator."""
    columns = (
        TextColumn("{task.description:<46}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    rows: list[dict[str, Any]] = []
    with Progress(*columns) as progress:
        bar = progress.add_task(
            "", total=sum(EPOCH_SECONDS[c.dataset] * c.epochs * c.seeds for c in chosen)
        )
        for cell in chosen:
            results = []
            for seed in range(cell.seeds):
                about = f"{cell.dataset} {cell.split} E={cell.epochs} lr={cell.lr:g} {cell.init} seed {seed}"
                progress.update(bar, description=about)
                results.append(run_cell(cell, seed))
                progress.advance(bar, EPOCH_SECONDS[cell.dataset] * cell.epochs)
            rows += [
                summary(cell, name, [result[name] for result in results]) for name in ESTIMATORS
            ]
    return rows


def summary(cell: Cell, estimator: str, results: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Mean and sample standard deviation over the seeds; None where there is only one."""
    row: dict[str, Any] = {
        **asdict(cell),
        "model": NETWORKS[cell.dataset][0],
        "estimator": estimator,
    }
    for name in FIGURES:
        values = np.array([result[name] for result in results])
        row[name] = round(float(values.mean()), 5)
        row[f"{name}_std"] = round(float(values.std(ddof=1)), 5) if len(values) > 1 else None
    return row | {
        "total_variation_by_seed": [round(result["total_variation"], 5) for result in results]
    }


def facts(command: str) -> dict[str, Any]:
    """When, from what and how the numbers are made; to be asked before the run, because the code
    may change during it.
    """

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=HERE.parent, capture_output=True, text=True, check=False
        ).stdout.strip()

    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": git("rev-parse", "--short", "HEAD")
        + (" with uncommitted changes" if git("status", "--short", "../src") else ""),
        "command": command,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def save(folder: Path, about: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    """results.json and results.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(
        json.dumps({"facts": about, "rows": rows}, indent=1) + "\n", encoding="utf-8"
    )
    names = [name for name in rows[0] if name != "total_variation_by_seed"]
    with (folder / "results.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Run, save, write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="digits only, one seed, into runs/estimation-quick"
    )
    parser.add_argument(
        "--page", action="store_true", help="only write README.md again from results.json"
    )
    given = parser.parse_args()
    folder = HERE.parents[1] / "runs" / "estimation-quick" if given.quick else HERE
    if not given.page:
        torch.set_num_threads(1)
        chosen = (
            [replace(cell, seeds=1) for cell in cells() if cell.dataset == "digits"]
            if given.quick
            else cells()
        )
        about = facts("python evidence/estimation.py" + " --quick" * given.quick)
        rows = run_all(chosen)
        save(folder, about | {"cpu minutes": round(time.process_time() / 60, 1)}, rows)
    print(write_page(folder, None if given.quick else HERE / "reading.md"))


if __name__ == "__main__":
    main()
