"""Tidy tables: one row per observation, one column per fact, as plain dicts; as pandas or Arrow
where those are installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedskew.errors import DataError, did_you_mean
from fedskew.types import RoundRecord

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]


def round_rows(rounds: Iterable[RoundRecord]) -> list[Row]:
    """One row per round: accuracy, losses, bytes by direction, times."""
    return [
        {
            "round": record.round,
            "accuracy": record.accuracy,
            "client_accuracy": record.client_accuracy,
            "test_loss": record.test_loss,
            "clients": sum(len(chain.clients) for chain in record.chains),
            "chains": len(record.chains),
            "failures": len(record.failures),
            **{
                f"bytes_{way}": sum(t.bytes for t in record.transfers if t.direction == way)
                for way in ("down", "up", "d2d")
            },
            "simulated_seconds": record.simulated_seconds,
            "joules": record.joules,
            "seconds": record.seconds,
        }
        for record in rounds
    ]


def choice_rows(rounds: Iterable[RoundRecord]) -> list[Row]:
    """One row per client and round that planned it: its chain, its place, what it reported."""
    return [
        {
            "round": record.round,
            "client": client,
            "slot": chain.slot,
            "chain": number,
            "place": place,
            "loss": record.loss.get(client, float("nan")),
            "failure": record.failures.get(client, ""),
        }
        for record in rounds
        for number, chain in enumerate(record.chains)
        for place, client in enumerate(chain.clients)
    ]


def transfer_rows(rounds: Iterable[RoundRecord]) -> list[Row]:
    """One row per entry of the ledger."""
    return [
        {
            "round": record.round,
            "direction": t.direction,
            "kind": t.kind,
            "bytes": t.bytes,
            "multicast": t.multicast,
        }
        for record in rounds
        for t in record.transfers
    ]


def client_rows(clients: Mapping[str, Sequence[Any]]) -> list[Row]:
    """One row per client; what is not known is nan.

    >>> client_rows({"client": [0, 1], "accuracy": [0.5, None]})[0]
    {'client': 0, 'accuracy': 0.5}
    """
    columns = {
        key: [float("nan") if v is None else v for v in values] for key, values in clients.items()
    }
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


TABLES: dict[str, Callable[[Any], list[Row]]] = {  # of anything with .rounds and .clients
    "rounds": lambda run: round_rows(run.rounds),
    "choices": lambda run: choice_rows(run.rounds),
    "transfers": lambda run: transfer_rows(run.rounds),
    "clients": lambda run: client_rows(run.clients),
}


def rows_of(run: Any, table: str) -> list[Row]:
    """One of :data:`TABLES`, with the recipe's name and the seed in front of every row."""
    if table not in TABLES:
        raise DataError("table", f"there is no table '{table}'", did_you_mean(table, TABLES))
    front = {"recipe": run.recipe["name"], "seed": run.seed}
    return [{**front, **row} for row in TABLES[table](run)]


def to_pandas(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows as a data frame."""
    try:
        import pandas
    except ImportError as error:
        raise DataError(
            "table", "pandas is not installed", "pip install 'fedskew[tables]'"
        ) from error
    return pandas.DataFrame(list(rows))


def to_arrow(rows: Sequence[Row]) -> Any:
    """Rows as a pyarrow.Table."""
    try:
        import pyarrow
    except ImportError as error:
        raise DataError(
            "table", "pyarrow is not installed", "pip install 'fedskew[tables]'"
        ) from error
    return pyarrow.Table.from_pylist(list(rows))
