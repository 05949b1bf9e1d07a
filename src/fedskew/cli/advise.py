"""``fedskew advise``: which method to switch on, what it gives and what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedskew import recipe as recipes
from fedskew.cli.own_rules import find_rules

out_console = Console()
err_console = Console(stderr=True)
Budget = Annotated[
    str | None,
    typer.Option(help="What may be spent: 200MB, 2h, 50Wh or 100rounds (default: the rounds)."),
]


def advise(
    source: Annotated[
        str,
        typer.Argument(
            help="A shipped recipe or a TOML file; a CSV or Parquet file of label counts; "
            "or a run folder."
        ),
    ],
    budget: Budget = None,
    allow: Annotated[
        str | None,
        typer.Option(
            help="What clients agree to, separated by commas: d2d, histograms, probe, personal, "
            "private=1.0; or none (default d2d,histograms,probe)."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="TABLE.OPTION=VALUE", help="For example run.clients_per_round=10."
        ),
    ] = None,
    parameters: Annotated[
        int | None, typer.Option(min=1, help="Size of the model, where it is not known.")
    ] = None,
    pilot: Annotated[
        bool,
        typer.Option("--pilot", help="First train the best candidates for a few rounds."),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Root of every random stream.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the first choice as a recipe.")
    ] = None,
    bank: Annotated[
        Path | None, typer.Option(help="Another bank than the one that comes with fedskew.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output.")
    ] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Import code that the recipe of a run folder names.")
    ] = False,
) -> None:
    """Say what to switch on: methods ranked by what they should reach within a budget."""
    from fedskew.advice.adviser import advise as ask
    from fedskew.advice.terminal import show_advice
    from fedskew.advice.written import write_recipe

    changes = recipes.read_assignments(set_ or [])
    if source.endswith(".toml"):
        find_rules([source], recipes.load(source), changes)
    advice = ask(
        source,
        budget=budget,
        allow=allow,
        settings=changes,
        parameters=parameters,
        pilot=pilot,
        seed=seed,
        bank=bank,
        trust=trust,
    )
    if out is not None:
        write_recipe(advice.recipe(), out)
    if as_json:
        print(
            json.dumps({**advice.payload(), "recipe": None if out is None else str(out)}, indent=2)
        )
        return
    show_advice(advice, out_console)
    if out is not None:
        err_console.print(
            f"recipe of {advice.choices[0].method}: {out}", markup=False, soft_wrap=True
        )
