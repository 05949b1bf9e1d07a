"""Write a ready Flower app: five short files that a person reads in five minutes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from fedskew.data import DATASETS
from fedskew.errors import RecipeError, RunFolderError
from fedskew.records import disk_errors

FILES = ("pyproject.toml", "task.py", "server_app.py", "client_app.py")


def write_app(folder: Path, recipe: Mapping[str, Any], *, seed: int = 0) -> list[Path]:
    """Write the app of a resolved recipe into a new folder; returns its files.

    >>> import tempfile
    >>> from fedskew.recipe import load, resolve
    >>> folder = Path(tempfile.mkdtemp()) / "my-fleet"
    >>> [path.name for path in write_app(folder, resolve(load("fedavg")))]
    ['recipe.toml', 'pyproject.toml', 'task.py', 'server_app.py', 'client_app.py']
    """
    with disk_errors(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunFolderError(str(folder), "exists and is not empty", "Choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        words = {
            "NAME": re.sub(r"[^a-z0-9-]+", "-", folder.resolve().name.lower()).strip("-")
            or "fleet",
            "RECIPE": _inside_quotes(recipe["name"]),
            "SEED": str(seed),
            "CLASSES": str(_num_classes(recipe)),
        }
        (folder / "recipe.toml").write_text(tomli_w.dumps(_no_none(recipe)))
        for name in FILES:
            (folder / name).write_text(_filled(name, words))
    return [folder / name for name in ("recipe.toml", *FILES)]


def _filled(name: str, words: Mapping[str, str]) -> str:
    text = (resources.files("fedskew.deploy") / "template" / f"{name}.in").read_text(
        encoding="utf8"
    )
    return re.sub("@([A-Z]+)@", lambda found: words[found[1]], text)  # once: values may hold an @


def _inside_quotes(text: str) -> str:
    """A text as it stands between the quotes of a TOML string.

    >>> _inside_quotes('a "b" \\\\')
    'a \\\\"b\\\\" \\\\\\\\'
    """
    return tomli_w.dumps({"x": text})[len('x = "') : -len('"\n')]


def _num_classes(recipe: Mapping[str, Any]) -> int:
    info = DATASETS.get(recipe["data"]["use"])
    if info is None:
        raise RecipeError(
            "data.use", f"'{recipe['data']['use']}' is unknown", "See: fedskew data list"
        )
    return info.classes


def _no_none(value: Any) -> Any:
    """TOML has no null: an option that is None is left out and becomes None again when it is
    read.
    """
    return (
        {key: _no_none(v) for key, v in value.items() if v is not None}
        if isinstance(value, Mapping)
        else value
    )
