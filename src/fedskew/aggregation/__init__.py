"""How the models that come back become the next one.

A plain function ``aggregate(model, ends, *, options) -> model``, or a frozen dataclass that derives
from :class:`fedskew.types.AggregationRule`.
"""

from __future__ import annotations

from typing import Any

from fedskew.aggregation.adaptive import AdaptiveServer
from fedskew.aggregation.centered_clipping import CenteredClipping
from fedskew.aggregation.clipped_mean import ClippedMean
from fedskew.aggregation.disco import feddisco
from fedskew.aggregation.dyn import FedDyn
from fedskew.aggregation.geometric_median import GeometricMedian
from fedskew.aggregation.krum import krum, multi_krum
from fedskew.aggregation.mean import mean
from fedskew.aggregation.median import median
from fedskew.aggregation.momentum import ServerMomentum
from fedskew.aggregation.nova import FedNova
from fedskew.aggregation.scaffold import Scaffold
from fedskew.aggregation.skew_aware import SkewAware
from fedskew.aggregation.trimmed_mean import trimmed_mean

AGGREGATIONS: dict[str, Any] = {
    "mean": mean,
    "feddisco": feddisco,
    "momentum": ServerMomentum,
    "adaptive": AdaptiveServer,
    "nova": FedNova,
    "dyn": FedDyn,
    "scaffold": Scaffold,
    "median": median,
    "trimmed_mean": trimmed_mean,
    "krum": krum,
    "multi_krum": multi_krum,
    "geometric_median": GeometricMedian,
    "clipped_mean": ClippedMean,
    "centered_clipping": CenteredClipping,
    "skew_aware": SkewAware,
}
