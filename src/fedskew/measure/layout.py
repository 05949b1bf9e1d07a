"""Which columns hold what: long (a row per client and label) or wide (a column per label).

A table whose columns could be either, or nearly carry the expected names, is refused with the
nearest spelling: a misspelt ``lable`` column must not become a class.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fedskew.errors import DataError, did_you_mean
from fedskew.foreign import printable

Form: TypeAlias = Literal["auto", "long", "wide"]

NAMES: dict[str, tuple[str, ...]] = {  # what a column may be called, in lower case
    "client": (
        "client",
        "client_id",
        "clients",
        "client_name",
        "cid",
        "device",
        "device_id",
        "user",
        "user_id",
        "node",
        "site",
    ),
    "label": ("label", "labels", "class", "class_id", "class_name", "category"),
    "count": ("count", "counts", "num_examples", "examples", "samples"),
}
NO_CLIENT = "none"  # --client-column none: rows have no names and are numbered


@dataclass(frozen=True)
class Layout:
    """Where to find what; ``client`` None: rows are numbered."""

    form: Literal["long", "wide"]
    client: str | None
    label: str | None = None
    count: str | None = None
    labels: tuple[str, ...] = ()  # columns of a wide table
    ignored: tuple[str, ...] = ()  # columns of a long table that are not read


def find_layout(
    columns: Sequence[str],
    where: str,
    *,
    form: Form = "auto",
    client: str | None = None,
    label: str | None = None,
    count: str | None = None,
) -> Layout:
    """Decide by the column names; what is given by name must be there.

    >>> find_layout(["client", "label", "count"], "a.csv").form
    'long'
    >>> find_layout(["client", "cat", "dog"], "a.csv").labels
    ('cat', 'dog')
    >>> find_layout(["client", "lable", "count"], "a.csv")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedskew.errors.DataError: a.csv: there is no label column among ... Is it 'lable'? Say ...
    """
    _check_header(columns, where)
    column_of = {
        role: _find(columns, where, role, chosen)
        for role, chosen in (("client", client), ("label", label), ("count", count))
    }
    if form == "auto":
        form = _guess(columns, where, column_of, is_named=label is not None or count is not None)
    if form == "long":
        for role in ("client", "label", "count"):
            if column_of[role] is None:
                raise _missing(columns, where, role)
        ignored = tuple(name for name in columns if name not in column_of.values())
        return Layout(
            "long", column_of["client"], column_of["label"], column_of["count"], ignored=ignored
        )
    if column_of["client"] is None and client != NO_CLIENT:
        raise _missing(columns, where, "client")
    labels = tuple(name for name in columns if name != column_of["client"])
    if not labels:
        raise DataError(
            where, "there are no label columns beside the client", "Give one column per label"
        )
    return Layout("wide", column_of["client"], labels=labels)


def _check_header(columns: Sequence[str], where: str) -> None:
    if not columns:
        raise DataError(where, "the file is empty", "Give a header line and one row per client")
    twice = next((name for i, name in enumerate(columns) if name in columns[:i]), None)
    if twice is not None:
        raise DataError(where, f"two columns are called '{printable(twice)}'", "Rename one")


def _find(columns: Sequence[str], where: str, role: str, chosen: str | None) -> str | None:
    """The column of a role: the one that is named, else the first of the usual names."""
    if chosen is not None:
        if chosen in columns:
            return chosen
        if role == "client" and chosen == NO_CLIENT:
            return None
        raise DataError(
            where, f"no column is called '{printable(chosen)}'", did_you_mean(chosen, columns)
        )
    plain = {name.strip().lower(): name for name in reversed(columns)}
    return next((plain[name] for name in NAMES[role] if name in plain), None)


def _guess(
    columns: Sequence[str], where: str, column_of: dict[str, str | None], *, is_named: bool
) -> Literal["long", "wide"]:
    """Long if a label and a count column are there; wide if there is no trace of either."""
    if column_of["label"] is not None and column_of["count"] is not None:
        return "long"
    if is_named or column_of["label"] is not None or column_of["count"] is not None:
        raise _missing(
            columns,
            where,
            "count" if column_of["label"] is not None else "label",
            also=" (or --format wide)",
        )
    near = [role for role in ("label", "count") if _near(columns, role)]
    if len(near) == 2 or (near and len(columns) <= 3):
        raise _missing(columns, where, near[0], also=" (or --format wide)")
    return "wide"


def _near(columns: Sequence[str], role: str) -> str | None:
    """A column whose name is nearly, but not quite, the name of a role."""
    plain = {name.strip().lower(): name for name in columns}
    near = difflib.get_close_matches(role, plain, n=1, cutoff=0.75)
    return plain[near[0]] if near else None


def _missing(columns: Sequence[str], where: str, role: str, also: str = "") -> DataError:
    shown = ", ".join(printable(name) for name in columns[:8]) + (
        " ..." if len(columns) > 8 else ""
    )
    near = _near(columns, role)
    option = f"--{role}-column {printable(near) if near else 'NAME'}"
    remedy = (
        f"Is it '{printable(near)}'? Say {option}{also}" if near else f"Name it with {option}{also}"
    )
    if role == "client" and not near:
        remedy += f", or --client-column {NO_CLIENT} if rows have no names"
    return DataError(where, f"there is no {role} column among {shown}", remedy)
