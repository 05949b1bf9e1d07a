"""How every benchmark prints: name, value, limit, ok or MISSED."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured number and the largest (or, with ``at_least``, smallest) value allowed; no
    limit = for information.
    """

    name: str
    value: float
    limit: float | None = None
    note: str = ""
    at_least: bool = False

    @property
    def ok(self) -> bool:
        if self.limit is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def report(title: str, figures: Sequence[Figure]) -> int:
    """Print the table; 1 if a limit is missed."""
    print(f"\n{title}")
    for f in figures:
        limit = "" if f.limit is None else f"{'>=' if f.at_least else '<='} {f.limit:g}"
        print(
            f"  {f.name:<50} {f.value:>9.3f}  {limit:<9} {'ok' if f.ok else 'MISSED':<7} {f.note}",
            flush=True,
        )
    return int(not all(f.ok for f in figures))
