"""In what order the chosen clients train, and on which model: ``procedure(ids, view, rng, *, options) -> Plan``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedskew.procedure.parallel import parallel
from fedskew.procedure.sequential import sequential

PROCEDURES: dict[str, Callable[..., Any]] = {
    "parallel": parallel,
    "sequential": sequential,
}
