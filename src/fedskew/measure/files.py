"""Open a table of label counts: CSV or Parquet.

CSV also with ``;``, tab or ``|`` between the columns, also gzipped.

Client and label names are kept as they are written: ``007`` stays ``007``. Nothing is guessed from
the file's name.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from fedskew.errors import DataError
from fedskew.foreign import printable
from fedskew.measure.layout import Layout

Decide: TypeAlias = Callable[[Sequence[str]], Layout]


def read_table(path: Path, decide: Decide) -> tuple[Any, Layout]:
    """A pyarrow table with the columns that are needed; ``decide`` says which from their names."""
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


def arrow(path: Path) -> Any:
    """pyarrow, or an error that says how to get it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(
            str(path), "pyarrow is not installed", "pip install 'fedskew[tables]'"
        ) from error
    return pyarrow


def _read_csv(path: Path, decide: Decide) -> tuple[Any, Layout]:
    pa = arrow(path)
    columns, delimiter = _header(path)
    layout = decide(columns)
    names = [name for name in (layout.client, layout.label) if name is not None]
    needed = [name for name in columns if name not in layout.ignored]
    try:
        with pa.input_stream(path, compression="gzip" if _is_gzip(path) else None) as stream:
            table = pa.csv.read_csv(
                stream,
                parse_options=pa.csv.ParseOptions(delimiter=delimiter),
                convert_options=pa.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), include_columns=needed
                ),
            )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return table, layout


def _header(path: Path) -> tuple[list[str], str]:
    """Column names and the character between them; pyarrow wants types by name before it reads."""
    opener: Any = gzip.open if _is_gzip(path) else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            line = file.readline(1 << 24)
            delimiter = max(",;\t|", key=line.count)
            return next(csv.reader([line], delimiter=delimiter), []), delimiter
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise _unreadable(path, error) from None


def _read_parquet(path: Path, decide: Decide) -> tuple[Any, Layout]:
    pa = arrow(path)
    try:
        file = pa.parquet.ParquetFile(path)
        # pandas' row numbers
        columns = [
            name for name in file.schema_arrow.names if not name.startswith("__index_level_")
        ]
        layout = decide(columns)
        return file.read(columns=[name for name in columns if name not in layout.ignored]), layout
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> DataError:
    if isinstance(error, UnicodeDecodeError):
        return DataError(
            str(path), "is not text in UTF-8, nor a Parquet file", "Save it as CSV in UTF-8"
        )
    first = printable(str(error).strip().split("\n")[0], 120)
    return DataError(str(path), f"cannot be read as a table: {first}", "Check the file")
