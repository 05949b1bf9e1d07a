"""Does a run read from a folder hang together? Readers rely on it, and a folder may be damaged, or
made by somebody who wants to see them fall.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedskew.experiment.run import Run
    from fedskew.types import RoundRecord

MOST_CLIENTS = 10_000_000  # of a folder that says nothing of its clients but their numbers
LARGEST = 2**53
MAY_LACK = ("accuracy", "test_loss", "last_loss")  # columns with NaN, which is null on disk
WORDS = ("untested",)  # columns of reasons


def fault_of(run: Run) -> str:
    """What cannot be in a run, "" if nothing is wrong."""
    if not 0 <= run.seed < 2**63:
        return f"its seed is {run.seed}"
    size = _num_clients(run)
    if size is None:
        return "clients.json and labels.json do not go together"
    if not all(_is_column(name, column, size) for name, column in run.clients.items()):
        return "clients.json is damaged"
    if any(not _is_reference(row, size) for row in run.references.values()):
        return "references.json is damaged"
    for position, record in enumerate(run.rounds):
        if record.round != position or not _is_round(record, size):
            return f"record {position + 1} of rounds.jsonl is damaged"
    return ""


def _num_clients(run: Run) -> int | None:
    """K, as far as the folder knows it; None if two files disagree."""
    sizes = {len(column) for column in run.clients.values() if isinstance(column, list)}
    sizes |= set() if run.labels is None else {len(run.labels.counts)}
    return None if len(sizes) > 1 else next(iter(sizes), MOST_CLIENTS)


def _is_column(name: str, column: Any, size: int) -> bool:
    return (
        isinstance(column, list)
        and len(column) == size
        and all(_is_cell(name, value) for value in column)
    )


def _is_cell(name: str, value: Any) -> bool:
    if name in WORDS:
        return isinstance(value, str)
    return _is_number(value) or (value is None and name in MAY_LACK)


def _is_reference(row: Mapping[str, Any], size: int) -> bool:
    if "failed" in row:
        return isinstance(row["failed"], str)
    return all(_is_column(key, row.get(key), size) for key in ("accuracy", "test_examples"))


def _is_round(record: RoundRecord, size: int) -> bool:
    return (
        all(
            0 <= chain.slot < LARGEST and _are_clients(chain.clients, size)
            for chain in record.chains
        )
        and all(
            _are_clients(table, size) for table in (record.loss, record.failures, record.unscored)
        )
        and (record.covers is None or 0 <= record.covers <= size)
        and all(
            t.direction in ("down", "up", "d2d")
            and isinstance(t.kind, str)
            and t.kind.isidentifier()
            and _is_count(t.bytes)
            and _is_count(t.multicast)
            for t in record.transfers
        )
        and not math.isinf(record.accuracy + record.client_accuracy)
    )


def _are_clients(ids: Iterable[Any], size: int) -> bool:
    return all(type(client) is int and 0 <= client < size for client in ids)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
