"""``fedskew show``: what came of runs, read from their folders."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedskew.cli.summaries import summary_table
from fedskew.compare.contenders import shared_text
from fedskew.experiment.run import Run
from fedskew.experiment.run_folders import find_runs
from fedskew.recipe import REGISTRIES, num_rounds
from fedskew.records import UNCHECKED, no_nan

out_console = Console()
IN_FEDERATION = ("partition", "model")  # stages that the line about the federation names


def show(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders that hold some.")
    ],
    target: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Also say what it took to hold this accuracy, for example 0.9."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output.")
    ] = False,
) -> None:
    """What came of runs: figures, recipe, how far they are."""
    found = [Run.read(folder) for folder in find_runs(runs)]
    if as_json:
        facts = [_summary(run, target) for run in found]
        print(json.dumps(no_nan(facts[0] if len(facts) == 1 else facts), indent=2))
        return
    if len(found) == 1:
        _show_recipe(found[0])
    if finished := [run for run in found if run.finished]:
        out_console.print(summary_table([run.summary(target) for run in finished]))
    for run in found:
        for line in _remarks(run):
            out_console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def _summary(run: Run, target: float | None) -> dict[str, Any]:
    """What ``run --json`` prints, or how far an unfinished run is."""
    if run.finished:
        return {**run.summary(target), "finished": True}
    last = run.evaluations[-1][1] if run.evaluations else math.nan
    return {
        "name": run.name,
        "seed": run.seed,
        "finished": False,
        "rounds": _reached(run),
        "last_accuracy": last,
        "out": str(run.folder),
    }


def _show_recipe(run: Run) -> None:
    table = Table(show_header=False, show_edge=False, pad_edge=False, box=None)
    table.add_row("federation", escape(shared_text(run.recipe)))
    stages = (stage for stage in REGISTRIES if stage in run.recipe and stage not in IN_FEDERATION)
    for stage in stages:
        table.add_row(stage, escape(str(run.recipe[stage]["use"])))
    out_console.print(table)
    out_console.print()


def _remarks(run: Run) -> list[str]:
    """How far it is, what it did not get, whether its files were checked."""
    lines = [f"note: {note}" for note in run.notes]
    if not run.checked:
        lines.append(f"note: {run.folder} was {UNCHECKED}")
    if not run.finished:
        far = f"round {_reached(run)} of {num_rounds(run.recipe)}"
        accuracy = f", accuracy {run.evaluations[-1][1]:.4f}" if run.evaluations else ""
        lines.append(
            f"{run.folder}: not finished, {far}{accuracy}. It is going on, or goes on when its "
            "command is given again with --resume"
        )
    return lines


def _reached(run: Run) -> int:
    return run.rounds[-1].round if run.rounds else 0
