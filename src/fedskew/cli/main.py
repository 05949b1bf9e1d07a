"""The command line: which commands there are, and what a mistake looks like."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from fedskew.cli.late import group_of
from fedskew.errors import FedskewError, plain_warnings
from fedskew.version import __version__

# Help is plain text; typer 0.20, which Flower wants, would escape its brackets for rich all the
# same.
typer.core.HAS_RICH = False
COMMANDS = {  # name -> where it is, one line
    "run": ("fedskew.cli.run:run", "Train a federation and keep its records."),
    "show": ("fedskew.cli.show:show", "What came of runs: figures, recipe, how far they are."),
    "compare": (
        "fedskew.cli.compare:compare",
        "Run what is missing of several methods on one federation and print one table.",
    ),
    "report": (
        "fedskew.cli.compare:report",
        "Write one HTML file that shows runs of one federation.",
    ),
    "export": (
        "fedskew.cli.compare:export",
        "Hand runs on: tidy Parquet tables, figures for papers, MLflow, TensorBoard.",
    ),
    "measure": (
        "fedskew.cli.measure:measure",
        "Say how skewed a federation is, who groups with whom, and what each paper's rule would "
        "do.",
    ),
    "privacy": (
        "fedskew.cli.measure:privacy",
        "Say how wrong label mixes and groups become when clients add noise, budget by budget.",
    ),
    "advise": (
        "fedskew.cli.advise:advise",
        "Say what to switch on: methods ranked by what they should reach within a budget.",
    ),
    "list": ("fedskew.cli.entries:list_", "What recipes are made of: stages, entries, options."),
    "data": ("fedskew.cli.datasets:app", "Datasets: what there is, fetch one, look at one."),
    "flower": ("fedskew.cli.flower:app", "The same recipe on a real fleet, with Flower."),
    "reproduce": (
        "fedskew.cli.reproduce:reproduce",
        "Make a study of evidence/ again: results, figures, page. What is there already is kept.",
    ),
}
app = typer.Typer(
    name="fedskew",
    cls=group_of(COMMANDS),
    help="Federated learning under label skew: "
    "measure it, decide who trains, train fast, keep an honest account.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _say_version(asked: bool) -> None:
    if asked:
        print(f"fedskew {__version__}")
        raise typer.Exit


@app.callback()
def fedskew(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Say which version."),
    ] = False,
) -> None:
    """What stands before the commands; their help is the app's."""


def main() -> None:
    """Entry point: an error made on purpose is one line and exit code 2."""
    plain_warnings()
    if sys.argv[1:2] in (["list"], ["data"]):  # they compute nothing: no threads to start for that
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        app(standalone_mode=True)
    except FedskewError as error:
        from rich.console import Console  # here, or every start pays for it

        console = Console(stderr=True)
        console.print(f"[red]error[/] {type(error).__name__}: ", end="", highlight=False)
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
