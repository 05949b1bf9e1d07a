"""Label counts from the rows of a file, long or wide.

Ten million rows take seconds: everything is done column by column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fedskew.errors import DataError, SignalError, foreign_file
from fedskew.foreign import printable
from fedskew.measure.counts import (
    Counts,
    check_numbers,
    listed,
    plural,
)
from fedskew.measure.files import Table, read_table
from fedskew.measure.layout import Form, Layout, find_layout
from fedskew.types import Ints

MOST_CELLS = 200_000_000  # clients x labels; 1.6 GB
SUM_NAMES = ("total", "sum", "all")  # columns that say what the others add up to


def read_counts(
    path: str | Path,
    *,
    form: Form = "auto",
    client_column: str | None = None,
    label_column: str | None = None,
    count_column: str | None = None,
) -> Counts:
    """Label counts from a file; which columns hold what is found by their names or given."""
    path = Path(path)
    choices = {"form": form, "client": client_column, "label": label_column, "count": count_column}
    table, layout = read_table(path, lambda columns: find_layout(columns, str(path), **choices))  # type: ignore[arg-type]
    if not table.num_rows:
        raise DataError(str(path), "there are no rows below the header", "Give at least one client")
    with foreign_file(DataError, str(path), "Columns hold names or numbers, no lists"):
        return _long(table, layout, path) if layout.form == "long" else _wide(table, layout, path)


# ---------------------------------------------------------------- long and wide


def _long(table: Table, layout: Layout, path: Path) -> Counts:
    assert layout.client is not None
    assert layout.label is not None
    assert layout.count is not None
    clients, own_client = _names(table, layout.client, path, "client")
    labels, own_label = _names(table, layout.label, path, "label")
    _check_cells(len(clients), len(labels), path)
    counts = check_numbers(
        table.counts(layout.count),
        str(path),
        lambda row: _pair(clients[own_client[row]], labels[own_label[row]]),
    )
    cells = own_client * len(labels) + own_label
    flat = np.zeros(len(clients) * len(labels), np.int64)
    np.add.at(flat, cells, counts)
    order = sorted(range(len(labels)), key=lambda i: _numeric_first(labels[i]))
    repeated = len(cells) - int(np.count_nonzero(np.bincount(cells)))
    notes = []
    if repeated:
        verbs = ("repeats", "its count is") if repeated == 1 else ("repeat", "their counts are")
        notes.append(
            f"{plural(repeated, 'row')} {verbs[0]} a (client, label) pair: {verbs[1]} added"
        )
    if layout.ignored:
        notes.append(f"{plural(len(layout.ignored), 'column')} not read: {listed(layout.ignored)}")
    square = flat.reshape(len(clients), len(labels))[:, order]
    return Counts(square, clients, [labels[i] for i in order], f"{path} (long)", tuple(notes))


def _wide(table: Table, layout: Layout, path: Path) -> Counts:
    _check_cells(table.num_rows, len(layout.labels), path)
    clients = _row_names(table, layout, path)
    square = np.empty((table.num_rows, len(layout.labels)), np.int64)
    for position, name in enumerate(layout.labels):
        square[:, position] = check_numbers(table.counts(name), str(path), _namer(clients, name))
    labels = [name.strip() for name in layout.labels]
    notes = []
    for position, name in enumerate(labels):
        if (
            name.lower() in SUM_NAMES
            and len(labels) > 2
            and (2 * square[:, position] == square.sum(axis=1)).all()
        ):
            notes.append(f"column '{printable(name)}' is the sum of the others: left out")
            square = np.delete(square, position, axis=1)
            labels = labels[:position] + labels[position + 1 :]
            break
    return Counts(square, clients, labels, f"{path} (wide)", tuple(notes))


def _row_names(table: Table, layout: Layout, path: Path) -> Sequence[str]:
    if layout.client is None:
        return [str(number) for number in range(table.num_rows)]
    names, numbers = _names(table, layout.client, path, "client")
    if len(names) < table.num_rows:
        twice = names[int((np.bincount(numbers) > 1).argmax())]
        raise SignalError(
            str(path),
            f"client '{printable(twice)}' has several rows",
            "Add them up, or give one row per client",
        )
    return names


def _names(table: Table, column: str, path: Path, role: str) -> tuple[list[str], Ints]:
    """(distinct names in order of appearance, which of them each row has); none may be empty."""
    names, numbers = table.names(column)
    if "" in names:
        first = int((numbers == names.index("")).argmax())
        raise SignalError(
            str(path), f"row {first + 1:,} has no {role}", "Give every row one, or remove the row"
        )
    return names, numbers


def _check_cells(num_clients: int, num_labels: int, path: Path) -> None:
    if num_clients * num_labels > MOST_CELLS:
        what = f"{num_clients:,} clients x {num_labels:,} labels are too many"
        raise DataError(str(path), what, "Check that the client and label columns are not mixed up")


def _numeric_first(label: str) -> tuple[int, float, str]:
    """Sort numbers as numbers and everything else as text behind them."""
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    return (0, number, label) if math.isfinite(number) else (1, 0.0, label)


def _namer(clients: Sequence[str], label: str) -> Callable[[int], str]:
    return lambda row: _pair(clients[row], label)


def _pair(client: str, label: str) -> str:
    return f"client '{printable(client)}', label '{printable(label)}'"
