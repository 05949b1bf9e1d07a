"""Commands that are imported when somebody calls them, so that ``--help``, a misspelt command and
shell completion do not wait for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

Table = Mapping[str, tuple[str, str]]  # command -> ("module:function" or "module:app", one line)


class LateCommand(TyperCommand):
    """The name of a command and one line about it; the command itself once it is called."""

    def __init__(self, name: str, where: str, line: str) -> None:
        super().__init__(name=name, callback=None, short_help=line, help=line)
        self._where = where

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **more: Any) -> Any:
        """Where click turns to the command that was called."""
        return load(self._where, self.name or "").make_context(info_name, args, *rest, **more)


def load(where: str, name: str) -> Any:
    """The click command behind ``module:function``, or behind the Typer app ``module:app``."""
    module, _, inside = where.partition(":")
    target = getattr(import_module(module), inside)
    if isinstance(target, typer.Typer):
        return typer.main.get_command(target)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(target)
    return typer.main.get_command(alone)


def group_of(table: Table) -> type[TyperGroup]:
    """A group with these commands, for ``typer.Typer(cls=...)``."""

    class Group(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            for name, (where, line) in table.items():
                self.add_command(LateCommand(name, where, line))

    return Group
