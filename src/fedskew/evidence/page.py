"""The page of a study, written from its results, ``study.toml`` and the hand-written
``reading.md``, and from nothing else: the same results always give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.evidence.claims import claims_text
from fedskew.evidence.figures import draw, read_figure
from fedskew.evidence.figures.declared import Figure
from fedskew.evidence.observations import Observation, observations, select
from fedskew.evidence.playing import plugin
from fedskew.evidence.results import FILE, Results, State
from fedskew.evidence.study import Study
from fedskew.evidence.tables import read_table, table_text
from fedskew.records import write_atomically

PAGE, READING = "README.md", "reading.md"
PLUS_MINUS = (
    "`±` is half the 95 % t interval of a mean over seeds (`fedskew.compare.estimates`), of paired "
    "differences where a column says against; without it there is one seed, or it is left out "
    "where nothing hangs on it."
)


def page_text(study: Study, results: Results, state: State) -> str:
    """The page."""
    rows = observations(results)
    parts = [part for raw in study.parts for part in [_part(study, raw, rows)] if part]
    reading = _reading(study)
    if reading and not any(raw.get("section") == "reading" for raw in study.parts):
        parts.insert(1, reading)
    sections = [f"# {study.title}", *_marks(study, state), *parts, _made(study, results)]
    return "\n\n".join(section.strip() for section in sections) + "\n"


def write_page(study: Study, results: Results, state: State, folder: Path) -> Path:
    """Page and figures of a study."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = observations(results)
    for figure in figures_of(study):
        draw(figure, rows, folder)
    path = folder / PAGE
    write_atomically(path, page_text(study, results, state).encode())
    return path


def figures_of(study: Study) -> list[Figure]:
    """What is drawn for a page."""
    where = f"{study.name}, figure"
    return [read_figure(where, raw["figure"]) for raw in study.parts if "figure" in raw]


# ---------------------------------------------------------------- parts


def _part(study: Study, raw: Mapping[str, Any], rows: Sequence[Observation]) -> str:
    if "text" in raw:
        return str(raw["text"])
    if "table" in raw:
        return _table(study, raw["table"], rows)
    if "figure" in raw:
        figure = read_figure(f"{study.name}, figure", raw["figure"])
        if not select(rows, figure.where):
            return ""  # nothing of it at this scale
        image = f"![{figure.title or figure.file}]({figure.file})"
        return "\n\n".join(text.strip() for text in (image, figure.caption) if text)
    if raw["section"] == "reading":
        return _reading(study)
    return str(plugin(study.folder, str(raw["section"]))(rows))


def _table(study: Study, raw: Mapping[str, Any], rows: Sequence[Observation]) -> str:
    table = read_table(f"{study.name}, table", raw)
    text = table_text(table, rows)
    heading = f"## {table.title}" if table.title else ""
    return "\n\n".join(part.strip() for part in (heading, table.note, text) if part) if text else ""


def _reading(study: Study) -> str:
    """What somebody wrote about the published numbers; other numbers need other words."""
    path = study.folder / READING
    return path.read_text(encoding="utf8") if study.is_published and path.is_file() else ""


# ---------------------------------------------------------------- how it was made


def _marks(study: Study, state: State) -> list[str]:
    """What to know before trusting the page."""
    total = len(state.current) + len(state.older) + len(state.missing)
    marks = []
    if state.older:
        marks.append(
            f"> **Made with an older version**: {len(state.older)} of {total} cells. "
            f"{_why(state)} `{command_of(study)}` makes them again."
        )
    if state.missing:
        marks.append(f"> **Not complete.** {len(state.missing)} of {total} cells are missing.")
    if study.scale != "full":
        marks.append(
            f"> **Scale: {study.scale}.** The text is about the full study, the numbers are not. "
            f"{study.scale_note}".rstrip()
        )
    return marks


def _why(state: State) -> str:
    """What has changed is said by the command: here it would change the page with every edit."""
    if not state.changed:
        return "What they were made of was not recorded then."
    return "Code or recipes that decide their numbers have changed since."


def command_of(study: Study) -> str:
    """What makes a study again."""
    return f"fedskew reproduce {study.name}" + (
        "" if study.is_published else f" --scale {study.scale}"
    )


def _made(study: Study, results: Results) -> str:
    lines = ["## How these numbers were made", f"`{command_of(study)}`. {PLUS_MINUS}"]
    makers = []
    for number, maker in enumerate(results.makers):
        cells = sum(cell.maker == number for cell in results.cells)
        facts = ", ".join(f"{key} {value}" for key, value in maker.items() if key != "note")
        makers.append(f"- {cells} cells: {facts}" + _note(maker))
    makers.append(f"- CPU time: {_duration(results.cpu_seconds)}")
    return "\n\n".join([*lines, "\n".join(makers)])


def _note(maker: Mapping[str, Any]) -> str:
    return f". {maker['note']}" if "note" in maker else ""


def _duration(seconds: float) -> str:
    if math.isnan(seconds):
        return "not recorded for every cell"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


# ---------------------------------------------------------------- all studies

INDEX = """# Evidence

Results that regenerate figures and tables of the papers. `fedskew reproduce` lists the studies and
their state, `fedskew reproduce STUDY` (or `make evidence-STUDY`) makes one again, cell by cell;
what was made before is kept. [How to write a study](../docs/evidence.md).
[The drill](drill/README.md) is no study: kills, damage and full disks, counted by `make drill`.

| study | what it shows |
|---|---|
"""


def index_text(studies: Sequence[Study]) -> str:
    """The page above all studies."""
    lines = [f"| {_entry(study)} | {study.summary} |" for study in studies]
    claims = claims_text(studies[0].folder.parent) if studies else ""
    return INDEX + "\n".join(lines) + "\n" + claims


def _entry(study: Study) -> str:
    if not (study.folder / FILE).is_file():
        return f"{study.name} (not made yet)"
    return f"[{study.name}]({study.name}/{PAGE})"
