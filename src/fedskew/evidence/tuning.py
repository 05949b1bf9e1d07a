"""Settings that a study chooses by itself: what was best on other seeds, cell by cell.

A grid with ``tuned = { grid = "tuning", axis = "lr" }`` takes for each of its cells the label of
``lr`` whose cells in the grid ``tuning`` had the best mean: over seeds, and over every other axis
that only ``tuning`` has (development federations, say). Axes that both have must agree. Nothing is
chosen before all of them are played, and no seed may stand in both grids.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from fedskew.errors import StudyError
from fedskew.evidence.cells import Cell, Choice, Choose, Labels, cells_of
from fedskew.evidence.grids import Grid, Tuned
from fedskew.evidence.observations import Observation, observations, select
from fedskew.evidence.results import FILE, Results, read_results
from fedskew.evidence.study import Study, read_study


def cells_with(study: Study, results: Results | None) -> list[Cell]:
    """All cells of a study, tuned as far as these results of it tell."""
    return cells_of(study, choices(study, results))


def tuning_part(study: Study) -> Study | None:
    """The grids that others of the same study are tuned by; None if there are none."""
    names = {grid.tuned.grid for grid in study.grids if grid.tuned and not grid.tuned.study}
    grids = tuple(grid for grid in study.grids if grid.name in names)
    if any(grid.tuned for grid in grids):
        raise StudyError(study.name, "a grid that tunes others is tuned", "Tune by one grid")
    return replace(study, grids=grids) if grids else None


def choices(study: Study, results: Results | None) -> Choose:
    """Who is asked what to choose for a cell."""
    mine = observations(results) if results is not None else []

    def choose(grid: Grid, labels: Labels) -> Choice | None:
        tuned = grid.tuned
        assert tuned is not None
        if tuned.study:
            source, rows = _elsewhere(study.folder.parent / tuned.study, tuned)
        else:
            source, rows = source_of(study, tuned), mine
        _check_seeds(f"{study.name}, grid {grid.name}", grid, source)
        tried = select(rows, {"grid": tuned.grid})
        rows = [row for row in tried if agrees(row, labels)]
        return best_of(tuned, source, rows, tries_of(tuned, source, labels))

    return choose


def agrees(row: Observation, labels: Labels) -> bool:
    """Whether a row has a cell's labels on all axes that both have."""
    return all(row.labels.get(axis, label) == label for axis, label in labels.items()
               if axis != "grid")  # fmt: skip


def tries_of(tuned: Tuned, source: Grid, labels: Labels) -> int:
    """How often each label is tried for a cell: with all seeds, on all axes it does not have."""
    own = {tuned.axis, *labels}
    return math.prod(len(axis.values) for axis in source.axes if axis.name not in own) * len(
        source.seeds
    )


def best_of(tuned: Tuned, source: Grid, rows: Sequence[Observation], tries: int) -> Choice | None:
    """The label with the best mean, the first among equals; None unless all have been tried so
    often. A number that is none is worse than any.
    """
    axis = next(axis for axis in source.axes if axis.name == tuned.axis)
    groups = {label: select(rows, {tuned.axis: label}) for label in axis.values}
    if not rows or {len(group) for group in groups.values()} != {tries}:
        return None
    sign = 1 if tuned.best == "max" else -1

    def worth(label: str) -> float:
        numbers = [sign * row.number(tuned.figure) for row in groups[label]]
        mean = sum(numbers) / len(numbers)
        return -math.inf if math.isnan(mean) else mean

    best = max(groups, key=worth)
    return Choice(best, axis.values[best])


def source_of(study: Study, tuned: Tuned) -> Grid:
    """The grid that tunes, which has the axis."""
    where = f"{study.name}, tuned"
    found = next((grid for grid in study.grids if grid.name == tuned.grid), None)
    if found is None:
        what = f"there is no grid '{tuned.grid}' at scale {study.scale}"
        raise StudyError(where, what, "Name a grid of the study")
    if tuned.axis not in {axis.name for axis in found.axes}:
        raise StudyError(where, f"grid '{tuned.grid}' has no axis '{tuned.axis}'", "Add it there")
    return found


@cache
def _elsewhere(folder: Path, tuned: Tuned) -> tuple[Grid, Sequence[Observation]]:
    """A grid of another study, with what is published of it."""
    results = read_results(folder / FILE)
    return source_of(read_study(folder), tuned), observations(results) if results else []


def _check_seeds(where: str, grid: Grid, source: Grid) -> None:
    both = sorted({*grid.seeds} & {*source.seeds})
    if both:
        what = f"seeds {both} are also those of grid {source.name}, which tunes it"
        raise StudyError(where, what, "Tune on other seeds")
