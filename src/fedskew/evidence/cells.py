"""The cells of a study: one recipe with its settings and one seed each.

Methods of one grid stand on one federation: they go through
:func:`fedskew.compare.contenders.line_up`, as in ``fedskew compare``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import nan
from pathlib import Path
from typing import Any

from fedskew.compare.contenders import SHARED, line_up
from fedskew.data import DATASETS
from fedskew.errors import FedskewError, StudyError
from fedskew.evidence.grids import Axis, Changes, Grid
from fedskew.evidence.study import Study
from fedskew.recipe import fingerprint, load

OPTION = "measure."  # settings of the study's own measurement, not of the recipe
Labels = Mapping[str, str]


@dataclass(frozen=True)
class Choice:
    """What was chosen for a cell by what another grid gave: a label there, and what it changes."""

    label: str
    changes: Changes

    @property
    def number(self) -> float:
        """The label as a number; nan if it is none."""
        try:
            return float(self.label)
        except ValueError:
            return nan


Choose = Callable[[Grid, Labels], Choice | None]  # None: nothing can be chosen yet


@dataclass(frozen=True)
class Cell:
    """One recipe with settings and one seed, and what is to be known of it."""

    labels: Labels  # axis -> value
    seed: int
    recipe: Mapping[str, Any]  # resolved
    options: Mapping[str, Any]  # of the measurement
    grid: Grid
    folder: Path  # of the study: its own functions are there
    choice: Choice | None = None  # where the grid is tuned by another

    @cached_property
    def fingerprint(self) -> str:
        """What decides its numbers besides seed, data and code; not where the data lie."""
        data = {**self.recipe["data"], "folder": ""}
        content = {
            "recipe": fingerprint({**self.recipe, "data": data}),
            "options": self.options,
            "measure": self.grid.measure,
            "figures": self.grid.figures,
            "keep": self.grid.keep,
            "target": self.grid.target,
            "references": self.wants_references,
        }
        text = json.dumps(content, sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def identity(self) -> tuple[tuple[tuple[str, str], ...], int]:
        """Where it stands in its study."""
        return identity_of(self.labels, self.seed)

    @property
    def waits(self) -> bool:
        """Whether it cannot be played before the grid that tunes it."""
        return self.grid.tuned is not None and self.choice is None

    @property
    def title(self) -> str:
        """What a person calls it."""
        return ", ".join([*self.labels.values(), f"seed {self.seed}"])

    @property
    def wants_references(self) -> bool:
        """Whether its run also gives the reference rows."""
        return bool(self.grid.references) and self.grid.references in self.labels.values()

    @property
    def needed_folder(self) -> str:
        """The dataset that has to lie in a folder the user names, "" if there is none."""
        use = str(self.recipe["data"]["use"])
        return use if use in DATASETS and DATASETS[use].needs_folder else ""

    def in_folder(self, folder: str) -> Cell:
        """The same with data from this folder."""
        recipe = {**self.recipe, "data": {**self.recipe["data"], "folder": folder}}
        return replace(self, recipe=recipe) if self.needed_folder else self


def identity_of(labels: Labels, seed: int) -> tuple[tuple[tuple[str, str], ...], int]:
    """Labels in any order, and the seed."""
    return tuple(sorted(labels.items())), seed


def cells_of(study: Study, choose: Choose = lambda grid, labels: None) -> list[Cell]:
    """All cells in the order of the page; seeds vary fastest. What is tuned waits, unless
    ``choose`` knows (:func:`fedskew.evidence.tuning.choices`).
    """
    cells = [cell for grid in study.grids for cell in _of_grid(study, grid, choose)]
    known = {cell.identity for cell in cells}
    if len(known) < len(cells):
        raise StudyError(study.name, "two grids have cells of the same labels", "Name the grids")
    return cells


def _of_grid(study: Study, grid: Grid, choose: Choose) -> Iterator[Cell]:
    where = f"{study.name}, grid {grid.name}" if grid.name else study.name
    fixed = {**({"grid": grid.name} if grid.name else {}), **grid.labels}
    for chosen in product(*(axis.values for axis in grid.axes)):
        labels = {**fixed, **dict(zip((axis.name for axis in grid.axes), chosen, strict=True))}
        choice = choose(grid, labels) if grid.tuned is not None else None
        recipe, options = _resolved(where, study.folder, grid, labels, choice)
        for seed in grid.seeds:
            yield Cell(labels, seed, recipe, options, grid, study.folder, choice)


def _resolved(
    where: str, folder: Path, grid: Grid, labels: Labels, choice: Choice | None
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """(Recipe on the federation of the grid's first method, options of the measurement)."""
    methods = next((axis for axis in grid.axes if axis.names_recipes), None)
    shared: dict[str, Any] = dict(grid.changes)
    for axis in grid.axes:
        if axis is not methods:
            shared |= axis.values[labels[axis.name]]
    shared |= choice.changes if choice is not None else {}
    name = labels[methods.name] if methods else grid.recipe
    own = _own(where, methods, name)
    options = {
        k.removeprefix(OPTION): v
        for k, v in {**shared, **own, **grid.top}.items()
        if k.startswith(OPTION)
    }
    first = next(iter(methods.values)) if methods else grid.recipe
    try:
        contenders = line_up(
            [_raw(folder, methods, one, grid) for one in (first, name)],
            _settings(shared, {first: _own(where, methods, first), name: own}, grid.top),
            twins=True,
        )
    except FedskewError as error:
        raise StudyError(f"{where}, {', '.join(labels.values())}", str(error)) from None
    return {**contenders[-1].recipe, "name": name}, options


def _own(where: str, methods: Axis | None, name: str) -> Changes:
    """What a method changes for itself; the federation is not its own."""
    own = {k: v for k, v in methods.values[name].items() if k != "recipe"} if methods else {}
    for key in own:
        if key.partition(".")[0] in SHARED:
            raise StudyError(
                f"{where}, {name}",
                f"{key} belongs to the federation, which all methods share",
                "Make it an axis of its own",
            )
    return own


def _raw(folder: Path, methods: Axis | None, name: str, grid: Grid) -> dict[str, Any]:
    """A recipe that is shipped, or lies beside the study, or anywhere."""
    source = methods.values[name].get("recipe", grid.recipe) if methods else grid.recipe
    beside = folder / str(source)
    return {**load(beside if beside.is_file() else source), "name": name}


def _settings(shared: Changes, own: Mapping[str, Changes], top: Changes) -> dict[str, Any]:
    """For :func:`line_up`: a method's own settings above shared ones, the scale's above all."""
    settings = {**shared, **top}
    settings |= {
        f"{n}:{k}": v for n, changes in own.items() for k, v in changes.items() if k not in top
    }
    return {k: v for k, v in settings.items() if not k.rpartition(":")[2].startswith(OPTION)}
