"""The first choice as a recipe that can be run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fedskew.records import no_none, write_atomically

if TYPE_CHECKING:
    from fedskew.advice.adviser import Advice

OWN_DATA = (
    "The federation is known by its label counts alone: "
    "run it in Python, fedskew.run(this file, data=..., clients=...)."
)

ON_A_FLEET = "Written for a fleet: put it in the place of recipe.toml in the app's folder."


def ready(advice: Advice, method: str) -> Mapping[str, Any]:
    """A method's resolved recipe with as many rounds as the budget pays for."""
    choice = next(one for one in advice.choices if one.method == method)
    recipe = advice.candidates[method].recipe
    words = [f"{recipe.get('description', '')}".strip()]
    if advice.subject.fleet:
        words.append(ON_A_FLEET)
    elif not advice.subject.has_data:
        words.append(OWN_DATA)
    return {
        **recipe,
        "description": " ".join(words),
        "run": {**recipe["run"], "rounds": choice.rounds},
    }


def write_recipe(recipe: Mapping[str, Any], path: Path) -> None:
    """As TOML; `fedskew run FILE` takes it."""
    write_atomically(path, tomli_w.dumps(no_none(recipe)).encode())
