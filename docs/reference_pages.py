"""The reference of commands and of the names a recipe may use, from the program itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from fedskew.cli.main import app

COMMANDS = """# Commands

What `fedskew COMMAND --help` says, for all of them.
"""
NAMES = """# Names a recipe may use

Every table of a recipe with what it takes, as `fedskew list` prints it. Tables with names of their
own are stages: `use = "name"` chooses one, and the options stand beside it. What each computes is
in [the methods](../../methods.md).
"""


def commands_page() -> str:
    """Every command with its help."""
    parts = [COMMANDS]
    for words in _commands(get_command(app), ()):
        level = "#" * (1 + len(words))
        parts.append(
            f"{level} fedskew {' '.join(words)}\n\n```text\n{_said(*words, '--help')}\n```"
        )
    return "\n\n".join(parts) + "\n"


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield (*words, name)
        yield from _commands(inner, (*words, name))


def names_page() -> str:
    """Every stage and table with its entries and their options."""
    parts = [NAMES]
    for stage, entries in json.loads(_said("list", "--json")).items():
        parts.append(f"## {stage}")
        parts += [_entry(name, facts) for name, facts in entries.items()]
    return "\n\n".join(parts) + "\n"


def _entry(name: str, facts: Mapping[str, Any]) -> str:
    words = [f"### `{name}`", _plain(facts["what"])]
    if facts.get("citation"):
        words.append(f"*{_plain(facts['citation'])}*")
    words.append("\n".join(f"- `{key}: {said}`" for key, said in facts["options"].items()))
    return "\n\n".join(word for word in words if word)


def _plain(text: str) -> str:
    """A docstring's sentence as Markdown: reST's code and references as code."""
    return re.sub(r"(?::\w+:)?`{1,2}~?([^`]+)`{1,2}", r"`\1`", text)


def _said(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "88"})
    if result.exit_code:
        raise RuntimeError(f"fedskew {' '.join(words)}: {result.output}")
    return result.output.rstrip()
