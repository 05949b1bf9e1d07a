"""Where runs lie on disk: the run folders below some folders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedskew.errors import RunFolderError
from fedskew.records import RUN

DEEPEST = 4  # folders below a given one in which runs are looked for


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """Run folders among the given ones and below them, each once, in order of their names; a
    folder without any is an error.
    """
    folders = [folder for path in paths for folder in _runs_in(Path(path))]
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
