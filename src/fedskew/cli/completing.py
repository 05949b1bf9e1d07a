"""What the shell offers when TAB is pressed."""

from __future__ import annotations

import typer


def recipe_names(incomplete: str) -> list[str]:
    """Shipped recipes."""
    from fedskew.recipe import shipped_recipes

    return [name for name in shipped_recipes() if name.startswith(incomplete)]


def stage_names(incomplete: str) -> list[str]:
    """What ``fedskew list`` takes first."""
    from fedskew.recipe import PLAIN_TABLES, REGISTRIES

    known = ("recipes", *PLAIN_TABLES, *REGISTRIES)
    return [name for name in known if name.startswith(incomplete)]


def entry_names(context: typer.Context, incomplete: str) -> list[str]:
    """What ``fedskew list STAGE`` takes next."""
    from fedskew.recipe import REGISTRIES

    stage = context.params.get("stage")
    if stage == "recipes":
        return recipe_names(incomplete)
    return [name for name in REGISTRIES.get(str(stage), ()) if name.startswith(incomplete)]


def dataset_names(incomplete: str) -> list[str]:
    """Datasets."""
    from fedskew.data import DATASETS

    return [name for name in DATASETS if name.startswith(incomplete)]
