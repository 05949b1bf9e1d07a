"""The recipe of a run that was made, as its folder has it.

The folder may come from anywhere: nothing is imported for it, no other file is read for it, and
what it says has the types that readers rely on. Options that an older version did not know get
their defaults; options that a newer one has dropped are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedskew.errors import FedskewError, RunFolderError
from fedskew.foreign import ForeignName, read_toml
from fedskew.recipe.catalogue import (
    DEFAULT_USE,
    OPTIONAL_TABLES,
    PLAIN_TABLES,
    REGISTRIES,
    TEXTS,
    Table,
    check_options,
)
from fedskew.recipe.reading import check_name
from fedskew.recipe.schema import options_of


def read_recorded(path: Path, *, trust: bool = False) -> Table:
    """The recipe of a run folder; with ``trust`` code that it names may be imported later."""
    try:
        raw = read_toml(path)
        check_name(str(path), raw.get("name"))
        recorded: Table = {key: raw[key] for key in TEXTS if isinstance(raw.get(key), str)}
        recorded |= {name: _plain(name, _table(raw, name)) for name in PLAIN_TABLES}
        stages = [name for name in REGISTRIES if name in raw or name not in OPTIONAL_TABLES]
        recorded |= {name: _stage(name, _table(raw, name), trust) for name in stages}
    except (OSError, ValueError, FedskewError) as error:
        what = error.what if isinstance(error, FedskewError) else str(error)
        where = error.where if isinstance(error, FedskewError) else str(path)
        raise RunFolderError(
            str(path),
            f"cannot be used as the recipe of a run: {where}: {what}",
            "Remove the folder and run again",
        ) from None
    return recorded


def _table(raw: Mapping[str, Any], name: str) -> Table:
    table = raw.get(name, {})
    if not isinstance(table, dict):
        raise ValueError(f"[{name}] is not a table")
    return table


def _plain(name: str, table: Table) -> Table:
    options = options_of(PLAIN_TABLES[name])
    known = {key: value for key, value in table.items() if key in options}
    return {**table, **check_options(name, options, known)}


def _stage(name: str, table: Table, trust: bool) -> Table:
    use = table.get("use", DEFAULT_USE.get(name))
    if not isinstance(use, str):
        raise ValueError(f"{name}.use is not a name")
    return {**table, "use": use if trust or use in REGISTRIES[name] else ForeignName(use)}
