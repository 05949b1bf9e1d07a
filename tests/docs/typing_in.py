"""Doing what a page says: its commands are run in this process, or only checked to parse."""

from __future__ import annotations

import io
import re
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest
from pages import ROOT, Command
from typer.main import get_command

from fedskew.cli.main import app, main

# What is not run here, and who runs it in its place.
PARSED_ONLY = {
    ("fedskew", "flower"): "tests/flower, with real fleets (make test-flower)",
    ("fedskew", "reproduce"): "tests/unit/evidence, and the studies themselves",
    ("fedskew", "data", "get"): "tests/unit/data, without a network",
}
SHELL = {"cd", "git", "ls", "source", "xdg-open"}  # of the reader's own machine


def type_in(command: Command) -> str:
    """Do what a command line says; its output."""
    words = list(command.words)
    if words[0] == "fedskew":
        if any(tuple(words[: len(start)]) == start for start in PARSED_ONLY):
            parse(words[1:])
            return "\n".join(command.shown)
        return fedskew(words[1:])
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in targets, f"make {words[1]}: no such target"
    elif "pip" in words[0] or words[:3] == ["python", "-m", "pip"]:
        _check_extras(words)
    else:
        assert words[0] in SHELL or words[1:3] == ["-m", "venv"], f"who runs {words}?"
    return "\n".join(command.shown)


def fedskew(arguments: list[str]) -> str:
    """Run the program in this process; everything it prints."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(said):
        patch.setattr(sys, "argv", ["fedskew", *arguments])
        patch.setenv("COLUMNS", "100")
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise AssertionError(f"{' '.join(arguments)}: {said.getvalue()}") from None
    return said.getvalue()


def parse(arguments: list[str]) -> None:
    """Read a command line as the program would, without doing anything."""
    command: Any = get_command(app)
    context = command.make_context("fedskew", list(arguments))
    while hasattr(command := context.command, "commands"):  # a late command is another by now
        rest = [*getattr(context, "_protected_args", []), *context.args]
        name, command, rest = command.resolve_command(context, rest)
        assert command is not None, f"fedskew {' '.join(arguments)}: unknown"
        context = command.make_context(name, rest, parent=context)


def _check_extras(words: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extras in re.findall(r"\[([\w,]+)\]", " ".join(words)):
        assert set(extras.split(",")) <= set(project["optional-dependencies"]), words


def agrees(shown: tuple[str, ...], said: str) -> bool:
    """Whether the lines shown came out in this order; ``…`` stands for anything."""
    lines = iter(line.rstrip() for line in said.splitlines())
    wanted = [line.rstrip() for line in shown if line.strip() not in ("", "…")]
    return all(any(_like(line, seen) for seen in lines) for line in wanted)


def _like(pattern: str, line: str) -> bool:
    """Runs of blanks count as one: columns are as wide as what stands in them."""
    parts = [re.escape(" ".join(part.split())) for part in pattern.split("…")]
    return re.fullmatch(r"\s*" + r".*".join(parts) + r"\s*", " ".join(line.split())) is not None
