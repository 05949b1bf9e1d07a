"""Command lines that stand in documents: whether ours would take them."""

from __future__ import annotations

from collections.abc import Sequence

import click
import typer

from fedskew.cli.main import app


def check_parses(words: Sequence[str]) -> None:
    """As the command line would, without doing anything."""
    command: click.Command = typer.main.get_command(app)
    assert words[0] == "fedskew"
    context = command.make_context("fedskew", list(words[1:]))
    while isinstance(command := context.command, click.Group):  # a late command is another by now
        rest = [*getattr(context, "_protected_args", []), *context.args]
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, name
        context = found.make_context(name, rest, parent=context)
