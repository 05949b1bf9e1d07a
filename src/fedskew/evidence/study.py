"""What ``study.toml`` says: which cells there are, and what the page shows of them.

A study has grids. A grid is the product of its axes and seeds; a value of an axis has a label and
changes something: ``recipe`` (which method), ``"table.option"`` (a setting of the recipe), or
``"measure.option"`` (an option of the study's own measurement). docs/evidence.md describes every
entry.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedskew.errors import StudyError, did_you_mean

FILE = "study.toml"
SCALES = ("full", "reduced", "smoke")
STUDY_KEYS = ("title", "summary", "publish", "set", "axes", "grid", "scale", "page")
GRID_KEYS = (
    *("name", "seeds", "over", "only", "axes", "set", "labels", "recipe", "measure"),
    *("figures", "keep", "target", "references"),
)
SCALE_KEYS = ("note", "seeds", "set", "only")
PART_KEYS = ("text", "table", "figure", "section")
KEEP = ("curve", "clients")  # lists that a run's row can hold
Changes = Mapping[str, Any]


@dataclass(frozen=True)
class Axis:
    """One thing that varies: label -> what it changes."""

    name: str
    values: Mapping[str, Changes]

    @property
    def names_recipes(self) -> bool:
        """Whether its values are methods."""
        return any("recipe" in changes for changes in self.values.values())


@dataclass(frozen=True)
class Grid:
    """Cells that are measured in one way: every combination of the axes' values with every seed."""

    name: str
    seeds: tuple[int, ...]
    axes: tuple[Axis, ...]
    changes: Changes
    labels: Mapping[str, str] = field(default_factory=dict)  # that all its cells have
    recipe: str = "fedavg"  # where no axis names one
    measure: str = ""  # "file.py:function": what to do instead of a run
    figures: str = ""  # "file.py:function": more numbers of a finished run
    keep: tuple[str, ...] = ()
    target: float | None = None  # accuracy to reach
    references: str = ""  # the method whose runs also give the reference rows
    top: Changes = field(default_factory=dict)  # settings of the scale: they come last


@dataclass(frozen=True)
class Study:
    """Everything ``study.toml`` says, at one scale."""

    name: str
    folder: Path
    title: str
    summary: str
    scale: str
    scale_note: str
    grids: tuple[Grid, ...]
    parts: tuple[Mapping[str, Any], ...]
    published: str  # the scale of the committed page

    @property
    def is_published(self) -> bool:
        """Whether this is the scale of the page in the study's own folder."""
        return self.scale == self.published


def find_studies(folder: Path) -> list[str]:
    """Names of the studies in a folder."""
    return sorted(path.parent.name for path in folder.glob(f"*/{FILE}"))


def read_study(folder: Path, scale: str | None = None) -> Study:
    """The study in a folder, at a scale (by default the one its page is published at)."""
    path = folder / FILE
    raw = _read(path)
    _check(str(path), raw, STUDY_KEYS)
    published = str(raw.get("publish", "full"))
    chosen = scale or published
    change = _scale(str(path), raw, chosen)
    grids = [_grid(f"{path}, grid", grid, raw) for grid in _required(path, raw, "grid")]
    return Study(
        name=folder.name,
        folder=folder,
        title=str(_required(path, raw, "title")),
        summary=str(_required(path, raw, "summary")),
        scale=chosen,
        scale_note=str(change.get("note", "")),
        grids=_at_scale(str(path), grids, change),
        parts=tuple(_part(str(path), part) for part in raw.get("page", ())),
        published=published,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf8"))
    except FileNotFoundError:
        known = find_studies(path.parent.parent)
        raise StudyError(
            str(path.parent),
            "is not a study" if path.parent.is_dir() else "does not exist",
            did_you_mean(path.parent.name, known) if known else f"A study is a folder with {FILE}",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise StudyError(str(path), f"cannot be read as TOML: {error}", "Correct it") from None


def _check(where: str, table: Mapping[str, Any], known: Collection[str]) -> None:
    for key in table:
        if key not in known:
            raise StudyError(where, f"unknown entry '{key}'", did_you_mean(key, known))


def _required(path: Path, raw: Mapping[str, Any], key: str) -> Any:
    if not raw.get(key):
        raise StudyError(str(path), f"has no {key}", f"Add {key}")
    return raw[key]


# ---------------------------------------------------------------- grids


def _grid(where: str, raw: Mapping[str, Any], study: Mapping[str, Any]) -> Grid:
    _check(where, raw, GRID_KEYS)
    where = f"{where} {raw.get('name', '')}".rstrip()
    _check(f"{where}, keep", dict.fromkeys(raw.get("keep", ())), KEEP)
    grid = Grid(
        name=str(raw.get("name", "")),
        seeds=_seeds(where, raw.get("seeds", (0,))),
        axes=_axes(where, raw, study.get("axes", {})),
        changes={**study.get("set", {}), **raw.get("set", {})},
        labels=raw.get("labels", {}),
        recipe=raw.get("recipe", "fedavg"),
        measure=raw.get("measure", ""),
        figures=raw.get("figures", ""),
        keep=tuple(raw.get("keep", ())),
        target=raw.get("target"),
        references=raw.get("references", ""),
    )
    if sum(axis.names_recipes for axis in grid.axes) > 1:
        raise StudyError(where, "two axes name recipes", "Let one of them change settings instead")
    return grid


def _seeds(where: str, raw: Any) -> tuple[int, ...]:
    if not isinstance(raw, list | tuple) or not raw or not all(isinstance(s, int) for s in raw):
        raise StudyError(where, f"seeds are {raw!r}", "Give a list of numbers: seeds = [0, 1, 2]")
    return tuple(raw)


def _axes(where: str, raw: Mapping[str, Any], shared: Mapping[str, Any]) -> tuple[Axis, ...]:
    """A grid's own axes, or those that ``over`` names: its own, or of the whole study."""
    known = {**shared, **raw.get("axes", {})}
    names = raw.get("over", list(raw.get("axes", {})))
    for name in names:
        if name not in known:
            raise StudyError(where, f"there is no axis '{name}'", did_you_mean(str(name), known))
    axes = [_axis(f"{where}, axis {name}", name, known[name]) for name in names]
    return tuple(_only(axis, _labels(raw.get("only", {}))) for axis in axes)


def _axis(where: str, name: str, raw: Any) -> Axis:
    """Either label -> changes, or ``{set = "local.lr", values = [0.1, 0.2]}``."""
    if not isinstance(raw, Mapping) or not raw:
        raise StudyError(where, f"is {raw!r}, not a table", 'Write "label" = {"local.lr" = 0.1}')
    if set(raw) == {"set", "values"}:
        return Axis(name, {str(value): {raw["set"]: value} for value in raw["values"]})
    for label, changes in raw.items():
        if not isinstance(changes, Mapping):
            raise StudyError(where, f"'{label}' is {changes!r}", 'Write {"table.option" = value}')
    return Axis(name, raw)


# ---------------------------------------------------------------- scales


def _scale(where: str, raw: Mapping[str, Any], scale: str) -> Mapping[str, Any]:
    if scale not in SCALES:
        raise StudyError("--scale", f"'{scale}' is no scale", did_you_mean(scale, SCALES))
    given = raw.get("scale", {})
    _check(f"{where}, scale", given, SCALES)
    if scale not in given and scale != "full":
        has = ", ".join(["full", *(name for name in given if name != "full")])
        raise StudyError(where, f"has no scale '{scale}'", f"It has: {has}")
    change: Mapping[str, Any] = given.get(scale, {})
    _check(f"{where}, scale {scale}", change, SCALE_KEYS)
    return change


def _at_scale(where: str, grids: Sequence[Grid], change: Mapping[str, Any]) -> tuple[Grid, ...]:
    """The grids with the scale's seeds and settings, and only the labels it keeps."""
    only = _labels(change.get("only", {}))
    seeds = _seeds(where, change["seeds"]) if "seeds" in change else None
    kept = [
        replace(smaller, seeds=seeds or grid.seeds, top=change.get("set", {}))
        for grid in grids
        if (smaller := _reduced(grid, only)) is not None
    ]
    if not kept:
        raise StudyError(where, "nothing is left at this scale", "Correct its 'only'")
    return tuple(kept)


def _reduced(grid: Grid, only: Mapping[str, Collection[str]]) -> Grid | None:
    fixed = {"grid": grid.name, **grid.labels}
    if any(label not in only.get(name, (label,)) for name, label in fixed.items()):
        return None
    axes = tuple(_only(axis, only) for axis in grid.axes)
    return replace(grid, axes=axes) if all(axis.values for axis in axes) else None


def _labels(raw: Mapping[str, Any]) -> Mapping[str, Collection[str]]:
    """Axis -> the labels that are kept."""
    return {name: tuple(map(str, labels)) for name, labels in raw.items()}


def _only(axis: Axis, only: Mapping[str, Collection[str]]) -> Axis:
    if axis.name not in only:
        return axis
    return replace(axis, values={k: v for k, v in axis.values.items() if k in only[axis.name]})


def _part(where: str, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    _check(f"{where}, page", raw, PART_KEYS)
    if len(raw) != 1:
        raise StudyError(f"{where}, page", f"an entry has {sorted(raw)}", "Give it exactly one")
    return raw
