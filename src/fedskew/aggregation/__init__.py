"""How the models that come back become the next one: ``aggregate(model, ends, *, options) -> model``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedskew.aggregation.mean import mean

AGGREGATIONS: dict[str, Callable[..., Any]] = {
    "mean": mean,
}
