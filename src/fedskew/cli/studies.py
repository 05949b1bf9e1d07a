"""What ``fedskew reproduce`` does: list studies, make one, write pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from fedskew.data import is_cached
from fedskew.errors import StudyError
from fedskew.evidence.cells import Cell
from fedskew.evidence.making import WORK, CellsFailed, make
from fedskew.evidence.page import index_text, write_page
from fedskew.evidence.results import FILE, Results, State, read_results, state_of, write_results
from fedskew.evidence.study import Study, find_studies, read_study
from fedskew.evidence.tuning import cells_with
from fedskew.evidence.watching import Progress
from fedskew.records import write_atomically
from fedskew.runtime.local.tasks import usable_cores

out_console = Console()
err_console = Console(stderr=True)


def all_studies(folder: Path, *, as_json: bool, pages: bool) -> None:
    """List the studies of a folder with their state; ``pages``: write all their pages first."""
    studies = [read_study(folder / name) for name in find_studies(folder)]
    if not studies:
        raise StudyError(
            str(folder), "holds no studies", "Use a clone of the repository, or --studies"
        )
    if pages:
        for study in studies:
            if (results := _results(study)) is not None:
                _write(study, results)
        write_atomically(folder / "README.md", index_text(studies).encode())
    _list(studies, as_json)


def write_again(folder: Path, scale: str | None, *, as_json: bool) -> None:
    """Page and figures of a study from its results; nothing is played."""
    study = read_study(folder, scale)
    results = _results(study)
    _say(study, results, _write(study, results), as_json)


def make_study(
    folder: Path,
    scale: str | None,
    *,
    data_folder: str,
    workers: int,
    again: bool,
    minutes: float,
    as_json: bool,
    quiet: bool,
) -> None:
    """Play what is missing of a study, then write results, figures and page."""
    study = read_study(folder, scale)
    how = _How(data_folder, workers, again, minutes, quiet or as_json)
    try:
        results, failed = _make(study, _results(study), how), None
    except CellsFailed as error:  # what the others gave is worth keeping
        results, failed = error.results, error
    _folder(study).mkdir(parents=True, exist_ok=True)
    write_results(_folder(study) / FILE, results)
    _say(study, results, _write(study, results), as_json)
    if failed is not None:
        raise failed


def _folder(study: Study) -> Path:
    """Where results and page go: only the published scale has its place in the repository."""
    return study.folder if study.is_published else WORK / f"{study.name}-{study.scale}"


def _results(study: Study) -> Results | None:
    return read_results(_folder(study) / FILE)


def _write(study: Study, results: Results | None) -> Path:
    if results is None:
        raise StudyError(study.name, "has no results yet", f"Run: fedskew reproduce {study.name}")
    return write_page(study, results, state_of(cells_with(study, results), results), _folder(study))


def _say(study: Study, results: Results | None, path: Path, as_json: bool) -> None:
    if not as_json:
        out_console.print(f"results and page: {path}", markup=False, soft_wrap=True)
        return
    files = {"page": str(path), "results": str(path.parent / FILE)}
    print(json.dumps({**_facts(study, results), **files}, indent=2))


# ---------------------------------------------------------------- the list


def _list(studies: list[Study], as_json: bool) -> None:
    facts = [_facts(study, _results(study)) for study in studies]
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    table = Table("study", "scale", "cells", "state", "made with", show_edge=False, pad_edge=False)
    for fact in facts:
        cells = f"{fact['cells'] - fact['missing']}/{fact['cells']}"
        table.add_row(
            fact["study"], fact["scale"], cells, _word(fact), ", ".join(fact["made with"])
        )
    out_console.print(table)


def _facts(study: Study, results: Results | None) -> dict[str, Any]:
    cells = cells_with(study, results)
    state: State = state_of(cells, results)
    makers = results.makers if results else ()
    return {
        "study": study.name,
        "title": study.title,
        "scale": study.scale,
        "cells": len(cells),
        "up to date": len(state.current),
        "older": len(state.older),
        "missing": len(state.missing),
        "changed": list(state.changed),
        "made with": list(dict.fromkeys(f"{m['version']} ({m['commit']})" for m in makers)),
        "needs": [name for name in _brought(cells) if not is_cached(name)],
    }


def _brought(cells: Sequence[Cell]) -> list[str]:
    """Datasets that cannot be fetched."""
    return sorted({cell.needed_folder for cell in cells} - {""})


def _word(fact: dict[str, Any]) -> str:
    words = []
    if fact["missing"]:
        words.append(f"{fact['missing']} missing")
    if fact["older"]:
        words.append(f"{fact['older']} made with an older version")
    if fact["needs"]:
        words.append(f"needs {', '.join(fact['needs'])}: --data-folder")
    return "; ".join(words) or "up to date"


# ---------------------------------------------------------------- making


class _How(NamedTuple):
    """How the user wants a study made."""

    folder: str
    workers: int
    again: bool
    minutes: float
    quiet: bool


def _make(study: Study, before: Results | None, how: _How) -> Results:
    try:
        with _Display(study.name, how.quiet) as display:
            return make(
                study,
                before,
                folder=how.folder,
                workers=how.workers or usable_cores(),
                again=how.again,
                minutes=how.minutes,
                watch=display.show,
                on_skip=display.line,
            )
    except KeyboardInterrupt:
        err_console.print("stopped; finished cells are kept, the same command goes on")
        raise SystemExit(130) from None


class _Display:
    """A bar in a terminal; where there is none, a line per cell."""

    def __init__(self, title: str, quiet: bool) -> None:
        self._lines = not quiet and not err_console.is_terminal
        columns = (
            TextColumn("{task.fields[title]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._bar = Bar(*columns, console=err_console, disable=quiet or self._lines)
        self._task = self._bar.add_task("", total=None, title=title, left="")

    def __enter__(self) -> _Display:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, now: Progress) -> None:
        """A cell has ended, or gone on by a round."""
        left = f"about {duration(now.left)} left" if now.left is not None else ""
        shown: dict[str, Any] = {"title": now.title[:40], "left": left}
        self._bar.update(self._task, completed=now.done, total=now.cells, **shown)
        if self._lines and now.seconds is not None:
            self.line(f"{now.done}/{now.cells} {now.title}: {duration(now.seconds)}; {left}")

    def line(self, text: str) -> None:
        """Something that stays to be read."""
        err_console.print(Text(text), soft_wrap=True)


def duration(seconds: float) -> str:
    """Seconds as a person says it.

    >>> duration(8.4), duration(150), duration(9000)
    ('8 s', '2 min', '2 h 30 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
