"""How the models that come back become the next one.

A plain function ``aggregate(model, ends, *, options) -> model``, or a frozen dataclass that derives
from :class:`fedskew.types.AggregationRule`.
"""

from __future__ import annotations

from typing import Any

from fedskew.aggregation.adaptive import AdaptiveServer
from fedskew.aggregation.dyn import FedDyn
from fedskew.aggregation.mean import mean
from fedskew.aggregation.momentum import ServerMomentum
from fedskew.aggregation.nova import FedNova
from fedskew.aggregation.scaffold import Scaffold

AGGREGATIONS: dict[str, Any] = {
    "mean": mean,
    "momentum": ServerMomentum,
    "adaptive": AdaptiveServer,
    "nova": FedNova,
    "dyn": FedDyn,
    "scaffold": Scaffold,
}
