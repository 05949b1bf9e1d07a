"""Recipes: TOML (or a dict) in, a checked :class:`Method` out. A stage function's keyword-only
signature is its schema.

A recipe has one table per stage (``use`` plus options) and ``[data] [partition] [model] [local]
[faults] [run]``; ``extends`` names another recipe, one level deep. Everything is checked before
anything runs, and what was left out is filled in, so the resolved recipe says everything about a
run but its seed.
"""

from fedskew.recipe.building import fingerprint, method_of, num_rounds, rule_of
from fedskew.recipe.catalogue import (
    PLAIN_TABLES,
    REGISTRIES,
    Table,
    check_options,
    find,
    stage_options,
)
from fedskew.recipe.reading import (
    expand,
    load,
    merge,
    names_code,
    override,
    read_assignments,
    shipped_recipes,
)
from fedskew.recipe.recorded import read_recorded
from fedskew.recipe.resolving import resolve

__all__ = [
    "PLAIN_TABLES",
    "REGISTRIES",
    "Table",
    "check_options",
    "expand",
    "find",
    "fingerprint",
    "load",
    "merge",
    "method_of",
    "names_code",
    "num_rounds",
    "override",
    "read_assignments",
    "read_recorded",
    "resolve",
    "rule_of",
    "shipped_recipes",
    "stage_options",
]
