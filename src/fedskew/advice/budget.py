"""What may be spent: ``200MB``, ``2h``, ``50Wh`` or ``100rounds``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fedskew.errors import RecipeError
from fedskew.experiment.figures import Resource

UNITS: dict[str, tuple[Resource, float]] = {
    "B": ("bytes", 1),
    "kB": ("bytes", 1e3),
    "MB": ("bytes", 1e6),
    "GB": ("bytes", 1e9),
    "TB": ("bytes", 1e12),
    "s": ("time", 1),
    "min": ("time", 60),
    "h": ("time", 3600),
    "d": ("time", 86400),
    "J": ("energy", 1),
    "mWh": ("energy", 3.6),
    "Wh": ("energy", 3600),
    "kWh": ("energy", 3.6e6),
    "rounds": ("rounds", 1),
}
EXAMPLE = "Examples: 200MB, 2h, 50Wh, 100rounds"


@dataclass(frozen=True)
class Budget:
    """So much of one resource: bytes, simulated seconds, joules or rounds."""

    resource: Resource
    amount: float

    def times(self, factor: float) -> Budget:
        """More or less of the same."""
        return Budget(self.resource, self.amount * factor)


def read_budget(text: str) -> Budget:
    """A budget as people write it; capital letters do not matter.

    >>> read_budget("200MB"), read_budget("1.5 h")
    (Budget(resource='bytes', amount=200000000.0), Budget(resource='time', amount=5400.0))
    """
    found = re.fullmatch(r"\s*([\d_]*\.?\d+(?:e\d+)?)\s*([A-Za-z]+)\s*", text)
    units = {name.lower(): unit for name, unit in UNITS.items()}
    if not found or found[2].lower() not in units:
        raise RecipeError("--budget", f"'{text}' is no amount with a unit", EXAMPLE)
    resource, size = units[found[2].lower()]
    amount = float(found[1]) * size
    if not 0 < amount < float("inf"):
        raise RecipeError("--budget", f"'{text}' is nothing", EXAMPLE)
    return Budget(resource, amount)
