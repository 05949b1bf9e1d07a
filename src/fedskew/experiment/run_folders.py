"""Where runs lie on disk: what a folder is called, and which run folders are below some folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.errors import RunFolderError
from fedskew.foreign import file_name
from fedskew.recipe import fingerprint
from fedskew.records import RUN, VERSION

DEEPEST = 4  # folders below a given one in which runs are looked for


RUNS = Path("runs")  # where runs lie if nobody says otherwise


def run_folder(
    root: Path, recipe: Mapping[str, Any], seed: int, *, of_version: bool = False
) -> Path:
    """The folder of one run: the same for the same resolved recipe and seed; with ``of_version``
    another one for every version of fedskew.

    >>> from fedskew.recipe import resolve
    >>> run_folder(Path("runs"), resolve({"name": "../my rule"}), 3).as_posix()[:13]
    'runs/_my_rule'
    """
    name = file_name(recipe["name"])
    version = f"-{VERSION}" if of_version else ""
    return root / f"{name}-{fingerprint(recipe)[:8]}{version}" / f"seed-{seed}"


def path_of(name: str, given: Any) -> Path:
    """A path that somebody gave in Python, or an error that says what it must be.

    >>> path_of("out", 3)
    Traceback (most recent call last):
    fedskew.errors.RunFolderError: out: is 3, which is no path. Give the name of a folder.
    """
    if not isinstance(given, str | os.PathLike):
        what = f"is {given!r}, which is no path"
        raise RunFolderError(name, what, "Give the name of a folder")
    return Path(given)


def check_resumable(folders: Sequence[Path]) -> None:
    """Refuse to go on where nothing was ever begun: the folder's name may be misspelt."""
    if not any(folder.is_dir() for folder in folders):
        what = "there is no run to go on with"
        raise RunFolderError(str(folders[0]), what, "Check the name, or leave --resume out")


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """Run folders among the given ones and below them, each once, in order of their names; a
    folder without any is an error.
    """
    folders = [folder for path in paths for folder in _runs_in(path_of("runs", path))]
    return list({folder.resolve(): folder for folder in folders}.values())


def _runs_in(path: Path) -> list[Path]:
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise RunFolderError(str(path), what, "Give the folder of a run")
    below = [path] if (path / RUN).is_file() else sorted(_below(path, DEEPEST), key=_natural)
    if not below:
        raise RunFolderError(
            str(path), "is not a run folder and holds none", "Give a folder that fedskew run wrote"
        )
    return below


def _below(folder: Path, depth: int) -> Iterable[Path]:
    for child in folder.iterdir():
        if child.is_dir() and not child.is_symlink():
            if (child / RUN).is_file():
                yield child
            elif depth > 1:
                yield from _below(child, depth - 1)


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """seed-2 before seed-10."""
    parts = "".join(c if c.isdigit() else f"\0{c}\0" for c in str(path)).split("\0")
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts if part]
