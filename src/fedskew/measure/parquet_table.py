"""A Parquet file, column by column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedskew.errors import DataError, SignalError
from fedskew.foreign import printable
from fedskew.types import Ints


def arrow(path: Path) -> Any:
    """pyarrow, or an error that says how to get it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        what = "is a Parquet file, and pyarrow is not installed"
        remedy = "pip install 'fedskew[tables]', or save it as CSV"
        raise DataError(str(path), what, remedy) from error
    return pyarrow


class ParquetTable:
    """A table of pyarrow's."""

    def __init__(self, path: Path, table: Any) -> None:
        self._path, self._table = path, table

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return int(self._table.num_rows)

    def names(self, column: str) -> tuple[list[str], Ints]:
        """(distinct names in order of appearance, which of them each row has)."""
        pa = arrow(self._path)
        # in one piece before it is coded: a dictionary per piece takes four times as long
        text = self._table.column(column).cast(pa.large_string()).combine_chunks()
        coded = pa.compute.utf8_trim_whitespace(text).fill_null("").dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return coded.dictionary.to_pylist(), codes

    def counts(self, column: str) -> NDArray[Any]:
        """The numbers of a column, missing ones as NaN; text is refused with its first value."""
        pa, values = arrow(self._path), self._table.column(column)
        kinds = pa.types
        if kinds.is_decimal(values.type):
            values = values.cast(pa.float64())
        elif not (
            kinds.is_integer(values.type)
            or kinds.is_floating(values.type)
            or kinds.is_null(values.type)
        ):
            what = f"column '{printable(column)}' holds {_not_a_number(values)}"
            raise SignalError(str(self._path), what, "Counts are whole numbers")
        if values.null_count:
            values = values.cast(pa.float64()).fill_null(float("nan"))
        return np.asarray(values.to_numpy())


def _not_a_number(column: Any) -> str:
    for value in column.to_pylist()[:100_000]:
        try:
            float(value)
        except (TypeError, ValueError):
            return f"{printable(str(value))!r}, not a count"
    return f"{column.type}, not numbers"
