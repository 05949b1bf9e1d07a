"""Command lines that stand in documents: whether ours would take them."""

from __future__ import annotations

from collections.abc import Sequence

import click
import typer

from fedskew.cli.main import app


def check_parses(words: Sequence[str]) -> None:
    """As the command line would, without doing anything."""
    command: click.Command = typer.main.get_command(app)
    rest = list(words)
    assert rest.pop(0) == "fedskew"
    context = None
    while isinstance(command, click.Group):
        context = click.Context(command, parent=context, info_name=command.name)
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, name
        command = found
    command.make_context(command.name, rest, parent=context)
