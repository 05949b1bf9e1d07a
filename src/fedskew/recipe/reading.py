"""From a name, a file or a dict to a raw recipe.

``extends``, ``--set`` and ``[sweep]`` are applied, nothing is checked yet.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from fedskew.errors import RecipeError, did_you_mean
from fedskew.foreign import fault_of_name, read_toml, toml_of
from fedskew.recipe.catalogue import Table
from fedskew.recipe.schema import plain


@cache
def shipped_recipes() -> Mapping[str, Path]:
    """Recipes that come with the package, by name; looked up once."""
    folder = Path(str(resources.files("fedskew") / "recipe" / "shipped"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load(source: str | Path | Mapping[str, Any]) -> Table:
    """Read a recipe: a shipped one's name, a TOML file, or a dict; ``extends`` is followed once."""
    raw = _deep(source) if isinstance(source, Mapping) else _read(str(source))
    parent = raw.get("extends")
    if not parent:
        return raw
    beside = (
        Path(str(source)).parent / str(parent)
        if not isinstance(source, Mapping)
        else Path(str(parent))
    )
    base = _read(
        str(beside if str(parent) not in shipped_recipes() and beside.is_file() else parent)
    )
    if "extends" in base:
        raise RecipeError(
            str(source),
            f"'{parent}' itself extends '{base['extends']}'",
            "Recipes extend one level deep",
        )
    return merge(base, raw)


def _read(source: str) -> Table:
    known = shipped_recipes()
    path = known.get(source) or Path(source)
    try:
        if source not in known and not path.is_file():
            raise RecipeError(
                "recipe", f"no recipe or file called '{source}'", did_you_mean(source, known)
            )
        raw = read_toml(path)
    except (ValueError, OSError) as error:
        raise RecipeError(
            str(path), f"cannot be read as TOML: {error}", "Correct the file"
        ) from None
    raw.setdefault("name", path.stem)
    check_name(str(path), raw["name"])
    return raw


def check_name(where: str, name: Any) -> None:
    """A recipe's name stands in tables, file names and pages: it must be one line of text."""
    if fault := fault_of_name(name):
        raise RecipeError(f"{where}, name", fault, 'Write name = "..."')


def _deep(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _deep(v) for k, v in value.items()}
    return plain(value)


def merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> Table:
    """``top`` over ``base``, table by table; another ``use`` replaces the old table whole.

    >>> merge({"local": {"lr": 1, "batch": 2}}, {"local": {"lr": 3}})
    {'local': {'lr': 3, 'batch': 2}}
    """
    merged: Table = _deep(base)
    for key, value in top.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping) and _same_kind(key, old, value):
            merged[key] = {**old, **value}
        else:
            merged[key] = _deep(value)
    return merged


def _same_kind(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether options carry over: the function stays the same.

    ``[data]`` options mean the same for every dataset.
    """
    return "use" not in new or new["use"] == old.get("use") or key == "data"


def override(raw: Mapping[str, Any], assignments: Mapping[str, Any]) -> Table:
    """Apply ``{"local.lr": 0.1}``-style settings; texts are read as TOML where that works.

    An option that is a table has a third name: ``faults.hostile.share``.

    >>> override({}, {"selection.use": "uniform", "local.lr": "0.1"})
    {'selection': {'use': 'uniform'}, 'local': {'lr': 0.1}}
    """
    changed: Table = _deep(raw)
    if not isinstance(assignments, Mapping) or not all(isinstance(key, str) for key in assignments):
        remedy = 'Give a dict: {"local.lr": 0.1}'
        raise RecipeError("settings", f"are {type(assignments).__name__}, not settings", remedy)
    # "use" first: it empties the table
    for key in sorted(assignments, key=lambda k: not k.endswith(".use")):
        table, *names = key.split(".")
        if len(names) not in (1, 2) or not all(names):
            raise RecipeError(
                f"setting {key}",
                "is not of the form table.option=value",
                'Example: --set local.lr=0.1, in Python {"local.lr": 0.1}',
            )
        value = _parsed(assignments[key])
        if len(names) == 2:
            inner = changed.get(table, {}).get(names[0]) or {}
            value = {**(inner if isinstance(inner, Mapping) else {}), names[1]: value}
        changed = merge(changed, {table: {names[0]: value}})
    return changed


def read_assignments(given: Sequence[str]) -> Table:
    """``["local.lr=0.1"]``, as it stands behind ``--set``, as a mapping for :func:`override`.

    >>> read_assignments(["local.lr = 0.1"])
    {'local.lr': '0.1'}
    """
    pairs = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise RecipeError(f"--set {text}", "has no '='", "Example: --set local.lr=0.1")
        pairs[key.strip()] = value.strip()
    return pairs


def names_code(table: Mapping[str, Any]) -> bool:
    """Whether a raw recipe, or settings for one, name functions outside the package.

    >>> names_code({"selection": {"use": "mine:rule"}}), names_code({"selection.use": "uniform"})
    (True, False)
    """
    return any(
        names_code(value)
        if isinstance(value, Mapping)
        else key.rpartition(".")[2] == "use" and ":" in str(value)
        for key, value in table.items()
    )


def _parsed(text: Any) -> Any:
    if not isinstance(text, str):
        return plain(text)
    try:
        (value,) = toml_of(f"value = {text}").values()
        return value
    except ValueError:  # also "1\nname = 2": one value is wanted
        return text


def expand(raw: Mapping[str, Any]) -> Iterator[Table]:
    """One recipe per combination of ``[sweep]``; without one, the recipe itself.

    >>> [r["local"]["lr"] for r in expand({"sweep": {"local.lr": [0.1, 0.2]}})]
    [0.1, 0.2]
    """
    base = {key: value for key, value in raw.items() if key != "sweep"}
    axes = raw.get("sweep", {})
    if not isinstance(axes, Mapping):
        raise RecipeError(
            "sweep",
            f"is {axes!r}, not a table",
            'Write [sweep] and below it "local.lr" = [0.1, 0.2]',
        )
    for key, values in axes.items():
        if not isinstance(values, list | tuple) or not values:
            raise RecipeError(
                f"sweep.{key}", f"is {values!r}", 'Give a list of values: "local.lr" = [0.1, 0.2]'
            )
    for combination in itertools.product(*axes.values()):
        yield override(base, dict(zip(axes, combination, strict=True))) if axes else base
