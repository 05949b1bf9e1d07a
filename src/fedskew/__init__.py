"""fedskew: signal -> distance -> clustering -> selection -> procedure -> (runtime trains) ->
aggregation -> accounting.

>>> import fedskew
>>> result = fedskew.run("fedavg", settings={"run.rounds": 1}, workers=1)
>>> result.summary()["rounds"]
1
"""

import sys

# `python -m fedskew` looks for modules in the current folder first, which may come from elsewhere.
# From here on it does not; SECURITY.md says what was imported before (the command `fedskew` and
# `python -P -m fedskew` are never at risk).
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    _told = sys.orig_argv
    _asked = _told[_told.index("-m") :][1:2] if "-m" in _told else []
    if _asked == ["fedskew"] or "-mfedskew" in _told:
        del sys.path[0]

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedskew.errors import FedskewError
from fedskew.version import __version__

if TYPE_CHECKING:
    from fedskew.advice.adviser import advise
    from fedskew.compare.comparison import Comparison
    from fedskew.experiment.local import run
    from fedskew.experiment.run import Run
    from fedskew.streams import stream

__all__ = ["STAGES", "Comparison", "FedskewError", "Run", "__version__", "advise", "run", "stream"]

STAGES = (
    "signal",
    "distance",
    "clustering",
    "selection",
    "procedure",
    "objective",
    "aggregation",
    "accounting",
    "finish",
)

_HOMES = {
    "Comparison": "compare.comparison",
    "Run": "experiment.run",
    "advise": "advice.adviser",
    "run": "experiment.local",
    "stream": "streams",
}
# for users
_ROOMS = ("data", "errors", "flower", "measure", "models", "recipe", "testing", "types")


def __getattr__(name: str) -> Any:
    """``run``, ``Comparison``, ``advise`` and the rooms bring much along: loaded when they
    are first asked for.
    """
    if name in _HOMES:
        return getattr(import_module(f"fedskew.{_HOMES[name]}"), name)
    if name in _ROOMS:
        return import_module(f"fedskew.{name}")
    raise AttributeError(f"module 'fedskew' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What there is for users, whether it is loaded already or not."""
    return sorted({*__all__, *_ROOMS, "__doc__", "__file__", "__name__", "__path__"})
