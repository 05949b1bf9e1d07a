"""fedskew: signal -> distance -> clustering -> selection -> procedure -> (runtime trains) ->
aggregation -> accounting.

>>> import fedskew
>>> result = fedskew.run("fedavg", settings={"run.rounds": 1}, workers=1)
>>> result.summary()["rounds"]
1
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedskew.errors import FedskewError
from fedskew.streams import stream
from fedskew.version import __version__

if TYPE_CHECKING:
    from fedskew.compare.comparison import Comparison
    from fedskew.experiment.local import run
    from fedskew.experiment.run import Run

__all__ = ["STAGES", "Comparison", "FedskewError", "Run", "__version__", "run", "stream"]

STAGES = (
    "signal",
    "distance",
    "clustering",
    "selection",
    "procedure",
    "objective",
    "aggregation",
    "accounting",
)

_HOMES = {"Comparison": "compare.comparison", "Run": "experiment.run", "run": "experiment.local"}


def __getattr__(name: str) -> Any:
    """``run``, ``Run`` and ``Comparison`` bring much machinery along: loaded when they are first
    asked for.
    """
    if name in _HOMES:
        return getattr(import_module(f"fedskew.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fedskew' has no attribute {name!r}")
