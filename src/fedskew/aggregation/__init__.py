"""How the models that come back become the next one: ``aggregate(model, ends, *, options) ->
model``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedskew.aggregation.adaptive import adaptive
from fedskew.aggregation.dyn import dyn
from fedskew.aggregation.mean import mean
from fedskew.aggregation.momentum import momentum
from fedskew.aggregation.nova import fednova
from fedskew.aggregation.scaffold import scaffold
from fedskew.types import Stateful

AGGREGATIONS: dict[str, Callable[..., Any] | Stateful] = {
    "mean": mean,
    "momentum": momentum,
    "adaptive": adaptive,
    "nova": fednova,
    "dyn": dyn,
    "scaffold": scaffold,
}
