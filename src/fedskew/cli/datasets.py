"""``fedskew data``: datasets, what there is, fetch one, look at one."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedskew import data as datasets
from fedskew.cli.completing import dataset_names
from fedskew.cli.progress import fetch_progress
from fedskew.data.fetch import source_of

app = typer.Typer(
    help="Datasets: what there is, fetch one, look at one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
out_console = Console()
err_console = Console(stderr=True)
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Name = Annotated[str, typer.Argument(help="See: fedskew data list", autocompletion=dataset_names)]
Folder = Annotated[
    str | None,
    typer.Option(help="Folder that holds the files, for datasets that cannot be fetched."),
]


@app.command("list")
def data_list(
    name: Annotated[
        str | None,
        typer.Argument(help="One of them, with all facts.", autocompletion=dataset_names),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Every dataset fedskew knows; with a name, where it comes from and its licence."""
    if name is not None:
        source_of(name)
    facts = {
        key: asdict(info)
        | {"cached": source_of(key).embedded is not None or datasets.is_cached(key)}
        | {"mirrors": _addresses(key)}
        for key, info in datasets.DATASETS.items()
        if name in (None, key)
    }
    if as_json:
        print(json.dumps(facts, indent=2))
    elif name is not None:
        _show({"name": name, **facts[name]})
    else:
        _overview(facts)


def _addresses(name: str) -> list[str]:
    mirrors = source_of(name).mirrors
    return [] if mirrors is None else list(mirrors.addresses)


def _overview(facts: Mapping[str, Mapping[str, Any]]) -> None:
    """A line each, titles broken where the screen ends, names never."""
    margin = max(map(len, facts))
    head = f"{'name':{margin}}  {'train':>7}  {'test':>6}  classes     MB  here  "
    room = max(shutil.get_terminal_size((80, 24)).columns - len(head), 20)
    typer.secho(head + "what", bold=True)
    for name, f in facts.items():
        counts = f"{f['examples']:>7}  {f['test_examples']:>6}  {f['classes']:>7}"
        here = "yes" if f["cached"] else "-"
        first, *rest = textwrap.wrap(f["title"], room)
        numbers = f"{counts}  {f['size_mb']:>5}  {here:<4}  {first}"
        typer.echo(f"{typer.style(name, fg='cyan')}{' ' * (margin - len(name))}  {numbers}")
        for line in rest:
            typer.echo(" " * len(head) + line)
    typer.echo("\norigin and licence: fedskew data list mnist; fetch one: fedskew data get mnist")


@app.command("get")
def data_get(name: Name, folder: Folder = None) -> None:
    """Fetch a dataset into the cache, or check that it is there."""
    with fetch_progress(err_console) as progress:
        path = datasets.fetch(name, folder=folder, progress=progress)
    out_console.print(f"{name}: ready in {path}", markup=False, soft_wrap=True)


@app.command("show")
def data_show(name: Name, folder: Folder = None, as_json: JsonFlag = False) -> None:
    """Shapes, classes and sizes of a dataset."""
    with fetch_progress(err_console) as progress:
        facts = datasets.describe(datasets.load(name, folder=folder, progress=progress))
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        _show(facts)


def _show(facts: Mapping[str, Any]) -> None:
    table = Table(show_header=False, show_edge=False, pad_edge=False)
    for key, value in facts.items():
        table.add_row(key.replace("_", " "), escape(str(value)))
    out_console.print(table)
