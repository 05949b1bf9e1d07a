"""Everything checked, every default filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedskew import data
from fedskew.errors import RecipeError, did_you_mean
from fedskew.recipe.catalogue import (
    DEFAULT_USE,
    OPTIONAL_TABLES,
    PLAIN_TABLES,
    REGISTRIES,
    TEXTS,
    Table,
    check_options,
    find,
    stage_options,
)
from fedskew.recipe.compatibility import check_neighbours
from fedskew.recipe.reading import check_name
from fedskew.recipe.schema import options_of


def resolve(raw: Mapping[str, Any]) -> Table:
    """Check everything and fill in every default.

    The result can be written to a file and read back.
    """
    known = {*REGISTRIES, *PLAIN_TABLES, *TEXTS}
    for key, value in raw.items():
        if key == "sweep":
            raise RecipeError(
                "recipe",
                "has a [sweep]",
                "Expand it first: expand(recipe) gives one recipe per combination",
            )
        if key not in known:
            raise RecipeError("recipe", f"unknown table or entry '{key}'", did_you_mean(key, known))
        if key in TEXTS and not isinstance(value, str):
            raise RecipeError(f"recipe.{key}", f"is {value!r}, not a text", f'Write {key} = "..."')
        if key not in TEXTS and not isinstance(value, Mapping):
            raise RecipeError(
                f"recipe.{key}",
                f"is {value!r}, not a table",
                f"Write [{key}] and its options below it",
            )
    resolved: Table = {"name": raw.get("name", "custom")}
    check_name("recipe", resolved["name"])
    resolved |= {key: str(raw[key]) for key in ("description", "citation") if key in raw}
    for name, schema in PLAIN_TABLES.items():
        resolved[name] = check_options(name, options_of(schema), raw.get(name, {}))
        schema(**resolved[name])  # tables with rules of their own check them here
    for name in REGISTRIES:
        table = dict(raw.get(name, {}))
        if name in OPTIONAL_TABLES and not table:
            continue
        table.setdefault(
            "use", DEFAULT_USE.get(name, _default_model(resolved) if name == "model" else None)
        )
        resolved[name] = _resolve_stage(name, table)
    check_neighbours(resolved)
    return resolved


def _default_model(resolved: Table) -> str:
    info = data.DATASETS.get(resolved["data"]["use"])
    return (info.default_model if info else "") or "mlp"


def _resolve_stage(name: str, table: Table) -> Table:
    if table.get("use") is None:
        raise RecipeError(
            f"recipe.{name}",
            "has no 'use'",
            f"Choose one of: {', '.join(sorted(REGISTRIES[name]))}",
        )
    if name in ("model", "partition") and table["use"] == "custom":
        return table  # the user's own, given in Python
    function = find(name, table["use"])
    options = {key: value for key, value in table.items() if key != "use"}
    return {"use": table["use"], **check_options(name, stage_options(name, function), options)}
