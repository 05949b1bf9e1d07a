"""Tables of a page as ``study.toml`` declares them: which rows, which columns, which figure.

``rows`` names the axes whose labels tell the lines apart. Without ``across`` every entry of
``columns`` is a column; with it there is a column per label of that axis, and the entries stand
in one field. docs/evidence.md lists what a table and an entry may say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedskew.errors import StudyError
from fedskew.evidence.fields import Column, check_entries, field_text, number_text, read_column
from fedskew.evidence.observations import Observation, Where, estimate, select, values_of


@dataclass(frozen=True)
class Table:
    """A table of the page."""

    rows: Sequence[str]
    columns: Sequence[Column]
    title: str = ""
    note: str = ""
    where: Where = field(default_factory=dict)
    heads: Sequence[str] = ()  # of the rows' axes; by default their names
    count: bool = False  # a column that says how many seeds there are
    across: str = ""
    join: str = " / "
    bold: str = ""  # "min" or "max": which of a line
    bold_not: Sequence[str] = ()  # labels of ``across`` that are never bold
    paper_title: str = ""  # numbers of somebody else, below ours
    paper: Mapping[str, Sequence[float]] = field(default_factory=dict)  # line -> one per column


@dataclass(frozen=True)
class Line:
    """What belongs into one line."""

    labels: tuple[str, ...]
    place: Mapping[str, str]  # axis -> label
    rows: Sequence[Observation]

    @property
    def name(self) -> str:
        """How ``study.toml`` calls it."""
        return ", ".join(self.labels)

    def heads(self, table: Table) -> list[str]:
        """What stands at its left."""
        seeds = len({row.seed for row in self.rows})
        return [*self.labels, *([str(seeds)] if table.count else [])]


def read_table(where: str, raw: Mapping[str, Any]) -> Table:
    """A table as it stands in ``study.toml``, checked."""
    check_entries(where, raw, Table)
    for needed in ("rows", "columns"):
        if needed not in raw:
            raise StudyError(where, f"a table has no {needed}", f"Add {needed} = [...]")
    columns = tuple(read_column(f"{where}, column", column) for column in raw["columns"])
    return Table(**{**raw, "columns": columns})


def table_text(table: Table, everything: Sequence[Observation]) -> str:
    """The table as Markdown; nothing where there are no rows."""
    rows = select(everything, table.where)
    lines = _lines(table, rows)
    if not lines:
        return ""
    across = values_of(rows, table.across) if table.across else []
    titles = across or [column.title or column.figure for column in table.columns]
    heads = [*(table.heads or table.rows), *(["seeds"] if table.count else [])]
    content = [[*heads, *titles], ["---"] * len(heads) + ["---:"] * len(titles)]
    for line in lines:
        content += _wide(table, line, across, rows) if across else [_plain(table, line, everything)]
    return "\n".join("| " + " | ".join(fields) + " |" for fields in content)


def _lines(table: Table, rows: Sequence[Observation]) -> list[Line]:
    """Rows by their labels, in the order in which they come."""
    groups: dict[tuple[str, ...], list[Observation]] = {}
    for row in rows:
        if all(axis in row.labels for axis in table.rows):
            groups.setdefault(tuple(row.labels[axis] for axis in table.rows), []).append(row)
    return [
        Line(labels, dict(zip(table.rows, labels, strict=True)), group)
        for labels, group in groups.items()
    ]


def _plain(table: Table, line: Line, everything: Sequence[Observation]) -> list[str]:
    place = {**table.where, **line.place}
    texts = [
        column.given.get(line.name, "")
        if column.given
        else field_text(column, place, line.rows, everything)
        for column in table.columns
    ]
    return [*line.heads(table), *texts]


# ---------------------------------------------------------------- a column per label of an axis


def _wide(
    table: Table, line: Line, across: Sequence[str], rows: Sequence[Observation]
) -> list[list[str]]:
    """One line; with somebody else's numbers and the difference below it where there are any."""
    places = [{**line.place, table.across: label} for label in across]
    groups = [select(line.rows, {table.across: label}) for label in across]
    texts = [
        table.join.join(field_text(column, place, group, rows) for column in table.columns)
        for place, group in zip(places, groups, strict=True)
    ]
    column = table.columns[0]
    means = [estimate(group, column.figure, factor=column.factor).mean for group in groups]
    ours = [*line.heads(table), *_emphasised(table, across, means, texts)]
    if line.name not in table.paper:
        return [ours]
    theirs = [*table.paper[line.name], *[math.nan] * len(means)][: len(means)]
    gaps = [mean - number for mean, number in zip(means, theirs, strict=True)]
    empty = [""] * (len(line.heads(table)) - 1)
    return [
        ours,
        [table.paper_title, *empty, *(number_text(value, column.format) for value in theirs)],
        ["difference", *empty, *(number_text(gap, "+" + column.format) for gap in gaps)],
    ]


def _emphasised(
    table: Table, across: Sequence[str], means: Sequence[float], texts: Sequence[str]
) -> list[str]:
    """The best field of a line in bold; it marks a line, it is no test."""
    known = {
        number: mean
        for number, mean in enumerate(means)
        if table.bold and across[number] not in table.bold_not and not math.isnan(mean)
    }
    if not known:
        return list(texts)
    best = (min if table.bold == "min" else max)(known, key=lambda number: known[number])
    return [f"**{text}**" if number == best else text for number, text in enumerate(texts)]
