"""Grids of a study: the product of axes and seeds, whole or at a smaller scale.

A value of an axis has a label and changes something: ``recipe`` (which method), ``"table.option"``
(a setting of the recipe), or ``"measure.option"`` (an option of the study's own measurement).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fedskew.errors import StudyError, did_you_mean

GRID_KEYS = (
    *("name", "seeds", "over", "only", "axes", "set", "labels", "recipe", "measure"),
    *("figures", "keep", "target", "references", "tuned"),
)
BEST = ("max", "min")
KEEP = ("curve", "plateau", "multicast", "clients")  # what else a run's row can hold
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
class Tuned:
    """A setting that is chosen for every cell by what cells of another grid gave with it."""

    grid: str  # where it was tried, with other seeds
    axis: str  # of that grid: what was tried
    figure: str = "final"  # by which of its numbers, a mean over whatever else varies there
    best: str = "max"
    study: str = ""  # where that grid is; here by default


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
    tuned: Tuned | None = None
    top: Changes = field(default_factory=dict)  # settings of the scale: they come last


def check_keys(where: str, table: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse what a table of ``study.toml`` cannot hold."""
    for key in table:
        if key not in known:
            raise StudyError(where, f"unknown entry '{key}'", did_you_mean(key, known))


def read_grid(where: str, raw: Mapping[str, Any], study: Mapping[str, Any]) -> Grid:
    """A grid as it stands in ``study.toml``, checked; ``study`` is the whole file."""
    check_keys(where, raw, GRID_KEYS)
    where = f"{where} {raw.get('name', '')}".rstrip()
    check_keys(f"{where}, keep", dict.fromkeys(raw.get("keep", ())), KEEP)
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
        tuned=_tuned(f"{where}, tuned", raw["tuned"]) if "tuned" in raw else None,
    )
    if sum(axis.names_recipes for axis in grid.axes) > 1:
        raise StudyError(where, "two axes name recipes", "Let one of them change settings instead")
    return grid


def _tuned(where: str, raw: Mapping[str, Any]) -> Tuned:
    check_keys(where, raw, [one.name for one in fields(Tuned)])
    for needed in ("grid", "axis"):
        if needed not in raw:
            raise StudyError(where, f"has no {needed}", 'Write { grid = "tuning", axis = "lr" }')
    tuned = Tuned(**raw)
    if tuned.best not in BEST:
        raise StudyError(where, f"best = '{tuned.best}'", did_you_mean(tuned.best, BEST))
    return tuned


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


# ---------------------------------------------------------------- smaller


def at_scale(where: str, grids: Sequence[Grid], change: Mapping[str, Any]) -> tuple[Grid, ...]:
    """The grids with the scale's seeds and settings, and only the labels it keeps."""
    only = _labels(change.get("only", {}))
    seeds = _seeds(where, change["seeds"]) if "seeds" in change else None
    kept = [
        replace(smaller, seeds=_fewer(grid, seeds, grids), top=change.get("set", {}))
        for grid in grids
        if (smaller := _reduced(grid, only)) is not None
    ]
    if not kept:
        raise StudyError(where, "nothing is left at this scale", "Correct its 'only'")
    return tuple(kept)


def _fewer(grid: Grid, seeds: tuple[int, ...] | None, grids: Sequence[Grid]) -> tuple[int, ...]:
    """The scale's seeds; where something is tuned, as many of its own, which stay other seeds."""
    if seeds is None:
        return grid.seeds
    tried = {one.tuned.grid for one in grids if one.tuned is not None and not one.tuned.study}
    return grid.seeds[: len(seeds)] if grid.name in tried else seeds


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
