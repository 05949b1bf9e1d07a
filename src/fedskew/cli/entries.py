"""``fedskew list``: what recipes are made of, generated from the signatures.

All entries a line each; a stage with its options; one entry with everything that is known of it.
"""

from __future__ import annotations

import inspect
import json
import re
import shutil
import textwrap
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from fedskew import recipe as recipes
from fedskew.cli.completing import entry_names, stage_names
from fedskew.errors import RecipeError, did_you_mean
from fedskew.foreign import read_toml
from fedskew.recipe.schema import options_of

Entry = Mapping[str, Any]  # what, citation, options


def list_(
    stage: Annotated[
        str | None,
        typer.Argument(
            help="One stage (selection, partition, ...) or 'recipes': with options.",
            autocompletion=stage_names,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            help="One entry of it: all that is known of it.", autocompletion=entry_names
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output.")
    ] = False,
) -> None:
    """What recipes are made of: stages, entries, options."""
    known = ["recipes", *recipes.PLAIN_TABLES, *recipes.REGISTRIES]
    if stage is not None and stage not in known:
        raise RecipeError("fedskew list", f"unknown stage '{stage}'", _where_else(stage, known))
    if stage is None and not as_json:
        _overview({one: lines_of(one) for one in known})
        return
    content = {one: entries_of(one) for one in known if stage in (None, one)}
    if stage is not None and name is not None:
        content = {stage: _only(stage, name, content[stage])}
    if as_json:
        print(json.dumps(content, indent=2))
    elif stage is not None:
        _details(stage, content[stage], cited=name is not None)


def _where_else(word: str, known: list[str]) -> str:
    """An entry's name where a stage was wanted: say which stage it belongs to."""
    homes = [stage for stage, registry in recipes.REGISTRIES.items() if word in registry]
    homes += ["recipes"] if word in recipes.shipped_recipes() else []
    if homes:
        return "Say " + " or ".join(f"fedskew list {home} {word}" for home in homes)
    return did_you_mean(word, known)


def _only(stage: str, name: str, entries: dict[str, Entry]) -> dict[str, Entry]:
    if name not in entries:
        raise RecipeError(
            f"fedskew list {stage}", f"there is no '{name}'", did_you_mean(name, entries)
        )
    return {name: entries[name]}


# ---------------------------------------------------------------- as a person reads it


def _overview(content: Mapping[str, Mapping[str, str]]) -> None:
    for stage, lines in content.items():
        typer.secho(stage, bold=True)
        margin = max(map(len, lines)) + 4
        for name, what in lines.items():
            first = textwrap.shorten(_plain(what), _width() - margin, placeholder=" …")
            typer.echo("  " + typer.style(name, fg="cyan") + " " * (margin - 2 - len(name)) + first)
        typer.echo()
    typer.echo("options: fedskew list selection; one entry: fedskew list selection fedlecc")


def _details(stage: str, entries: Mapping[str, Entry], *, cited: bool) -> None:
    for name, entry in entries.items():
        typer.secho(name, fg="cyan")
        _indented(entry["what"])
        if cited and entry.get("citation"):
            _indented(entry["citation"])
        for option, text in entry["options"].items():
            _indented(f"{option}: {text}", 4, 8)
    if not cited and stage not in recipes.PLAIN_TABLES:
        typer.echo(f"\nwith its source: fedskew list {stage} {next(iter(entries))}")


def _indented(text: str, first: int = 2, rest: int = 2) -> None:
    lines = textwrap.wrap(
        _plain(text), _width(), initial_indent=" " * first, subsequent_indent=" " * rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    typer.echo("\n".join(lines))


def _plain(text: str) -> str:
    """Docstrings without their marks.

    >>> _plain("``[run]``: how long ``rounds`` take")
    'how long rounds take'
    """
    return re.sub(r"^``\[\w+\]``: ", "", text).replace("``", "")


def _width() -> int:
    return shutil.get_terminal_size((80, 24)).columns


# ---------------------------------------------------------------- what there is


def lines_of(stage: str) -> dict[str, str]:
    """What each entry is, and nothing else of it: half the time of :func:`entries_of`.

    >>> all(lines_of(one) == {k: e["what"] for k, e in entries_of(one).items()}
    ...     for one in ("recipes", "run", "selection"))
    True
    """
    if stage == "recipes":
        return {
            key: str(read_toml(path).get("description", ""))
            for key, path in recipes.shipped_recipes().items()
        }
    if stage in recipes.PLAIN_TABLES:
        return {f"[{stage}]": _what(recipes.PLAIN_TABLES[stage])}
    return {key: _what(function) for key, function in recipes.REGISTRIES[stage].items()}


def entries_of(stage: str) -> dict[str, Entry]:
    """The entries of a stage, a plain table or the recipes, each with what is known of it."""
    if stage == "recipes":
        loaded = {key: recipes.load(key) for key in recipes.shipped_recipes()}
        return {
            key: {
                "what": r.get("description", ""),
                "citation": r.get("citation", ""),
                "options": {},
            }
            for key, r in loaded.items()
        }
    if stage in recipes.PLAIN_TABLES:
        schema = recipes.PLAIN_TABLES[stage]
        return {
            f"[{stage}]": {
                "what": _what(schema),
                "options": {k: o.text for k, o in options_of(schema).items()},
            }
        }
    return {
        key: {
            "what": _what(function),
            "citation": _citation(function),
            "options": {k: o.text for k, o in recipes.stage_options(stage, function).items()},
        }
        for key, function in recipes.REGISTRIES[stage].items()
    }


def _citation(function: Any) -> str:
    """The sentence of the module's docstring that names a paper: authors and title, or "Paper
    00x", up to its first stop.
    """
    module = inspect.getmodule(function)
    for paragraph in (inspect.getdoc(module) or "").split("\n\n")[1:3]:
        text = " ".join(paragraph.split())
        if found := re.match(
            r'([^"]*: "[^"]+".*?|.*?\b[Pp]aper 00\d.*?|A baseline without.*?)(?=[;:.](\s|$)|$)',
            text,
        ):
            cited = found[1].strip()
            return cited if cited.count("(") == cited.count(")") else cited.rpartition(" (")[0]
    return ""


def _what(thing: Any) -> str:
    """The first paragraph of the module that holds one method, or of the function itself."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
