"""What stands in one field of a table: a mean over seeds with its interval, a range, a mark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from fedskew.compare.estimates import Estimate
from fedskew.errors import StudyError, did_you_mean
from fedskew.evidence.observations import Observation, Where, estimate, select

SHOWN = ("mean", "range", "values", "mark")


@dataclass(frozen=True)
class Column:
    """What is shown of the rows that belong into a field."""

    figure: str = ""
    title: str = ""
    format: str = ".3f"
    factor: float = 1.0
    spread: bool = True  # with ± where there are several seeds
    show: str = "mean"
    mark: str = "yes"  # for show = "mark": where the figure is not 0
    against: Where = field(default_factory=dict)  # differences from the rows with these labels
    where: Where = field(default_factory=dict)  # looks elsewhere, for what has the line's labels
    given: Mapping[str, str] = field(default_factory=dict)  # line -> text: not from results


def read_column(where: str, raw: Mapping[str, Any]) -> Column:
    """An entry of ``columns``, checked."""
    check_entries(where, raw, Column)
    column = Column(**raw)
    if column.show not in SHOWN:
        hint = did_you_mean(column.show, SHOWN)
        raise StudyError(where, f"show = '{column.show}' is not known", hint)
    return column


def check_entries(where: str, raw: Mapping[str, Any], kind: type) -> None:
    """Refuse what a declaration cannot hold."""
    known = [entry.name for entry in fields(kind)]
    for key in raw:
        if key not in known:
            raise StudyError(where, f"unknown entry '{key}'", did_you_mean(key, known))


def field_text(
    column: Column, place: Mapping[str, str], mine: Sequence[Observation], everything: Everything
) -> str:
    """The field of the rows ``mine``, which have the labels ``place``."""
    if column.where:
        return text_of(column, elsewhere(everything, column.where, place))
    if column.against:
        base = select(everything, {**place, **column.against})
        return "" if base == list(mine) else text_of(column, mine, base)
    return text_of(column, mine)


Everything = Sequence[Observation]


def elsewhere(everything: Everything, where: Where, place: Mapping[str, str]) -> list[Observation]:
    """Rows with other labels, and with the line's own as far as they have these axes."""
    free = {axis: label for axis, label in place.items() if axis not in where}
    return [
        row
        for row in select(everything, where)
        if all(row.labels.get(axis, label) == label for axis, label in free.items())
    ]


def text_of(
    column: Column, rows: Sequence[Observation], against: Sequence[Observation] | None = None
) -> str:
    """Numbers over seeds as text."""
    numbers = [row.number(column.figure) * column.factor for row in rows]
    known = [number for number in numbers if not math.isnan(number)]
    if column.show == "mark":
        return column.mark if any(known) else ""
    if column.show == "range":
        ends = [min(known), max(known)] if known else []
        return " to ".join(dict.fromkeys(number_text(end, column.format) for end in ends))
    if column.show == "values":
        return ", ".join(number_text(number, column.format) for number in known)
    found = estimate(rows, column.figure, against=against, factor=column.factor)
    return estimate_text(found, column.format, column.spread)


def estimate_text(found: Estimate, spec: str, spread: bool = True) -> str:
    """Mean ± half its interval; ``>`` where some seeds never got there.

    >>> estimate_text(Estimate(0.5, 0.4, 0.6, 5), ".2f")
    '0.50 ± 0.10'
    >>> estimate_text(Estimate(3.0, 2.0, 4.0, 5, censored=1), ".0f")
    '> 3 (1 of 5 never)'
    """
    if not found.n:
        return ""
    text = number_text(found.mean, spec)
    if found.censored:
        many = "" if found.censored == found.n else f" ({found.censored} of {found.n} never)"
        return f"> {text}{many}"
    if not spread or math.isnan(found.low):
        return text
    return f"{text} ± {number_text(found.half_width, spec.removeprefix('+'))}"


def number_text(value: float, spec: str) -> str:
    """A number, or nothing where there is none."""
    return "" if math.isnan(value) else format(value, spec)
