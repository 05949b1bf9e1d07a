"""A fingerprint of the code that a cell's numbers come from: when it changes, the page says so.

It covers the source of the stages that the recipe uses, of its model, of the loop and of the local
runtime, and of the study's own measurement; and whatever these import from the rooms that decide
numbers. Comments, docstrings and line breaks do not count. Types, errors, records and registries do
not either: they change without any number changing.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fedskew.evidence.cells import Cell
from fedskew.recipe import REGISTRIES, find

ROOMS = (
    *("loop", "runtime.local", "models", "data.partitions", "labels", "accounting"),
    *("signal", "distance", "clustering", "selection", "procedure", "objective", "aggregation"),
    "finish",
)
ALWAYS = (
    *("fedskew.loop.federation", "fedskew.runtime.local.runtime"),
    *("fedskew.models.head", "fedskew.streams"),
)
Parts = Mapping[str, str]  # room or module -> digest


class Roots(NamedTuple):
    """Where the code behind a cell begins: modules of the package, and files of the study."""

    modules: tuple[str, ...]
    files: frozenset[Path]


def roots_of(cell: Cell) -> Roots:
    """The stages a cell names, what every run has, and what its study brings along. Most cells of
    a study share them.
    """
    plugins = {cell.grid.measure, cell.grid.figures} - {""}
    files = frozenset(cell.folder / plugin.partition(":")[0] for plugin in plugins)
    return Roots((*ALWAYS, *_stage_modules(cell.recipe)), files)


def parts_of(roots: Roots) -> Parts:
    """Digests of the code that is reached, by room; a file outside the package by its own name."""
    rooms: dict[str, list[str]] = {}
    for module in sorted(_reached(roots.modules)):
        rooms.setdefault(room_of(module), []).append(digest_of(_file_of(module)))
    for file in roots.files:
        rooms[file.name] = [digest_of(file)]
        for module in sorted(_reached(_imports(file))):
            rooms[file.name].append(digest_of(_file_of(module)))
    return {room: _short("".join(digests)) for room, digests in sorted(rooms.items())}


def fingerprint_of(parts: Parts) -> str:
    """All of it in twelve letters."""
    return _short("".join(f"{room} {digest}" for room, digest in parts.items()), 12)


def room_of(module: str) -> str:
    """What a reader is told has changed.

    >>> room_of("fedskew.loop.training"), room_of("fedskew.selection.fedlecc"), room_of("mine")
    ('loop', 'selection.fedlecc', 'mine')
    """
    inside = module.removeprefix("fedskew.")
    return next(
        (room for room in ("loop", "runtime.local", "accounting") if inside.startswith(f"{room}.")),
        inside,
    )


def _stage_modules(recipe: Mapping[str, Any]) -> Iterator[str]:
    """Where the functions a recipe names are defined."""
    for stage in REGISTRIES:
        use = recipe.get(stage, {}).get("use")
        if use is not None and use != "custom":
            yield find(stage, use).__module__


def _reached(modules: Iterable[str]) -> set[str]:
    """These modules and all they import from the rooms that count."""
    waiting, seen = list(modules), set[str]()
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += _imports(_file_of(module))
    return seen


@cache
def _file_of(module: str) -> Path:
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        return Path(module)
    return Path(found.origin)


def _imports(file: Path) -> tuple[str, ...]:
    """Modules of the rooms that a file imports, anywhere in it."""
    return _imports_in(source_of(file), file)


@cache
def _imports_in(source: str, file: Path) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, file)
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(name for name in dict.fromkeys(names) if _counts(name))


def _absolute(node: ast.ImportFrom, file: Path) -> str:
    """``from .x import y`` as seen from the top of the package."""
    if not node.level:
        return node.module or ""
    folders = file.parts[: -node.level]
    start = len(folders) - 1 - folders[::-1].index("fedskew")
    return ".".join([*folders[start:], *([node.module] if node.module else [])])


@cache
def _counts(name: str) -> bool:
    """Whether it is a module (no package: those are registries) of a room that decides numbers."""
    if not name.startswith(tuple(f"fedskew.{room}." for room in ROOMS)):
        return False
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # a function of a module
        return False
    return found is not None and found.submodule_search_locations is None


# ---------------------------------------------------------------- one file


def source_of(file: Path) -> str:
    """The text of a file; read once as long as it does not change."""
    facts = file.stat()
    return _read(file, facts.st_mtime_ns, facts.st_size)


@cache
def _read(file: Path, changed: int, size: int) -> str:
    return file.read_text(encoding="utf8")


def digest_of(file: Path) -> str:
    """A digest of the code in a file."""
    return _digest(source_of(file))


@cache
def _digest(source: str) -> str:
    return _short(bare(source))


def bare(source: str) -> str:
    r"""Code without comments, docstrings and white space.

    >>> bare("def f(x):\n    'Twice.'\n    return 2 * x  # or x + x\n")
    'deff(x):return2*x'
    """
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row = token.start[0] - 1
            lines[row] = lines[row][: token.start[1]]
    for first, last in _docstrings(source):
        lines[first:last] = [""] * (last - first)
    return re.sub(r",([)\]}])", r"\1", re.sub(r"\s+", "", "".join(lines)))


def _docstrings(source: str) -> Iterator[tuple[int, int]]:
    """Lines of every docstring: first, one behind the last."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            head = node.body[0] if node.body else None
            if isinstance(head, ast.Expr) and _is_text(head.value):
                yield head.lineno - 1, head.end_lineno or head.lineno


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _short(text: str, letters: int = 8) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:letters]
