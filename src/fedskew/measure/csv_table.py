"""A CSV file, column by column, a piece at a time.

Names are numbered and counts become arrays while the file is read: no library is needed, and ten
million rows take no more memory than their numbers.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedskew.errors import DataError, SignalError
from fedskew.foreign import printable
from fedskew.measure.layout import Layout
from fedskew.types import Ints

CELLS = 2_000_000  # of a piece
MISSING = {"", "na", "n/a", "#n/a", "nan", "-nan", "null", "none"}  # in lower case: no number


class CsvTable:
    """The columns of a CSV file that are needed."""

    def __init__(self, path: Path, columns: Sequence[str], layout: Layout) -> None:
        self._path, self._width = path, len(columns)
        texts = {layout.client, layout.label} - {None}
        self._read: dict[str, _Names | _Numbers] = {
            name: _Names() if name in texts else _Numbers(path, name)
            for name in columns
            if name not in layout.ignored
        }
        self._places = [columns.index(name) for name in self._read]
        self.num_rows = 0

    def read(self, lines: Iterator[str], delimiter: str) -> None:
        """Take in all lines below the header."""
        rows = (row for row in csv.reader(lines, delimiter=delimiter) if row)
        while piece := list(islice(rows, max(CELLS // self._width, 1))):
            self._check_widths(piece)
            whole = list(zip(*piece, strict=True))
            for place, column in zip(self._places, self._read.values(), strict=True):
                column.add(whole[place])
            self.num_rows += len(piece)

    def _check_widths(self, rows: Sequence[Sequence[str]]) -> None:
        odd = next((i for i, row in enumerate(rows) if len(row) != self._width), None)
        if odd is not None:
            what = f"row {self.num_rows + odd + 1:,} has {len(rows[odd])} columns, "
            what = f"cannot be read as a table: {what}the header {self._width}"
            raise DataError(str(self._path), what, "Check the file")

    def names(self, column: str) -> tuple[list[str], Ints]:
        """(distinct names in order of appearance, which of them each row has)."""
        found = self._read[column]
        assert isinstance(found, _Names)
        return list(found.numbers), np.concatenate(found.codes)

    def counts(self, column: str) -> NDArray[Any]:
        """The numbers of a column, missing ones as NaN."""
        found = self._read[column]
        assert isinstance(found, _Numbers)
        return np.concatenate(found.parts)


class _Names:
    """Texts without the blanks around them, each numbered when it first appears."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.codes: list[Ints] = []

    def add(self, texts: Sequence[str]) -> None:
        numbers = self.numbers
        for text in texts:
            numbers.setdefault(text.strip(), len(numbers))
        self.codes.append(np.array([numbers[text.strip()] for text in texts], np.int64))


class _Numbers:
    """Whole numbers if all of a piece are, else floats."""

    def __init__(self, path: Path, name: str) -> None:
        self.parts: list[NDArray[Any]] = []
        self._path, self._name = path, name

    def add(self, texts: Sequence[str]) -> None:
        try:
            part: NDArray[Any] = np.array(texts).astype(np.int64)
        except (ValueError, OverflowError):
            part = np.array([self._float(text) for text in texts], np.float64)
        self.parts.append(part)

    def _float(self, text: str) -> float:
        text = text.strip()
        if text.lower() in MISSING:
            return float("nan")
        try:
            return float(text)
        except ValueError:
            what = f"column '{printable(self._name)}' holds {printable(text)!r}, not a count"
            raise SignalError(str(self._path), what, "Counts are whole numbers") from None
