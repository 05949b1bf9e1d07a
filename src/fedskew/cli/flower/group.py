"""What the commands of ``fedskew flower`` share: the group, its options, how it prints."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedskew.deploy.flower_cli import DEFAULT_SECONDS, SECONDS_VARIABLE

app = typer.Typer(
    help="The same recipe on a real fleet, with Flower.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
out_console = Console()
Home = Annotated[
    Path,
    typer.Option(
        "--home",
        envvar="FEDSKEW_FLEET",
        metavar="DIR",
        help="Folder of the fleet: logs, keys, what runs.",
    ),
]
HOME = Path(".fleet")
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]


@app.callback()
def flower(
    flwr_seconds: Annotated[
        float,
        typer.Option(envvar=SECONDS_VARIABLE, min=1, help="How long Flower's commands may take."),
    ] = DEFAULT_SECONDS,
) -> None:
    """The same recipe on a real fleet, with Flower."""
    os.environ[SECONDS_VARIABLE] = str(flwr_seconds)


def say(text: str) -> None:
    """A line for people, as it is."""
    out_console.print(text, markup=False, highlight=False, soft_wrap=True)


def say_json(value: Any, *, indent: int | None = None) -> None:
    """A value for programs; without an indent it is one line."""
    print(json.dumps(value, indent=indent), flush=True)
