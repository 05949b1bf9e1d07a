"""Who trains in this round: ``select(view, rng, *, options) -> client ids``. A recipe may also name "module:function"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedskew.selection.uniform import uniform

SELECTIONS: dict[str, Callable[..., Any]] = {
    "uniform": uniform,
}
