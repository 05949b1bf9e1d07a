"""Open a table of label counts: CSV or Parquet.

CSV also with ``;``, tab or ``|`` between the columns, also gzipped; only Parquet needs a library.

Client and label names are kept as they are written: ``007`` stays ``007``. Nothing is guessed from
the file's name.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeAlias

from numpy.typing import NDArray

from fedskew.errors import DataError
from fedskew.foreign import printable
from fedskew.measure.csv_table import CsvTable
from fedskew.measure.layout import Layout
from fedskew.measure.parquet_table import ParquetTable, arrow
from fedskew.types import Ints

Decide: TypeAlias = Callable[[Sequence[str]], Layout]


class Table(Protocol):
    """The columns of a file."""

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        ...

    def names(self, column: str) -> tuple[list[str], Ints]:
        """(distinct names in order of appearance, which of them each row has)."""
        ...

    def counts(self, column: str) -> NDArray[Any]:
        """The numbers of a column, missing ones as NaN; an error if it holds anything else."""
        ...


def read_table(path: Path, decide: Decide) -> tuple[Table, Layout]:
    """A table with the columns that are needed; ``decide`` says which from their names."""
    _check_file(path)
    return _read_parquet(path, decide) if _magic(path) == b"PAR1" else _read_csv(path, decide)


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise DataError(str(path), "is a folder", "Give a CSV or Parquet file")
    if not path.exists():
        raise DataError(str(path), "there is no such file", "Check the path")
    if not path.stat().st_size:
        raise DataError(str(path), "the file is empty", "Give a header line and one row per client")


def _magic(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(4)
    except OSError as error:
        raise DataError(str(path), error.strerror or str(error), "Check the path") from None


def _is_gzip(path: Path) -> bool:
    return _magic(path)[:2] == b"\x1f\x8b"


def _read_csv(path: Path, decide: Decide) -> tuple[Table, Layout]:
    with _text(path) as file:
        line = file.readline(1 << 24)
        delimiter = max(",;\t|", key=line.count)
        columns = next(csv.reader([line], delimiter=delimiter), [])
        layout = decide(columns)
        table = CsvTable(path, columns, layout)
        table.read(file, delimiter)
    return table, layout


@contextmanager
def _text(path: Path) -> Iterator[TextIO]:
    """The lines of a file, whatever goes wrong in the block as one error of ours."""
    opener: Any = gzip.open if _is_gzip(path) else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise _unreadable(path, error) from None


def _read_parquet(path: Path, decide: Decide) -> tuple[Table, Layout]:
    pa = arrow(path)
    try:
        file = pa.parquet.ParquetFile(path)
        # pandas' row numbers
        columns = [
            name for name in file.schema_arrow.names if not name.startswith("__index_level_")
        ]
        layout = decide(columns)
        needed = [name for name in columns if name not in layout.ignored]
        return ParquetTable(path, file.read(columns=needed)), layout
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> DataError:
    if isinstance(error, UnicodeDecodeError):
        return DataError(
            str(path), "is not text in UTF-8, nor a Parquet file", "Save it as CSV in UTF-8"
        )
    first = printable(str(error).strip().split("\n")[0], 120)
    return DataError(str(path), f"cannot be read as a table: {first}", "Check the file")
