"""fedskew inside a Flower app that exists already::

    strategy = fedskew.flower.Strategy("fedlecc")            # in the ServerApp, instead of FedAvg()
    app = ClientApp(mods=[fedskew.flower.disclose(labels)])  # in the ClientApp, where rules want it

Both need Flower (``pip install 'fedskew[flower]'``), which ``import fedskew`` alone never imports.
docs/flower.md, "In an existing Flower app", has the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedskew.experiment.strategy import Strategy
    from fedskew.runtime.flower.disclosing import disclose

__all__ = ["Strategy", "disclose"]

_HOMES = {"Strategy": "experiment.strategy", "disclose": "runtime.flower.disclosing"}


def __getattr__(name: str) -> Any:
    """A ClientApp needs no strategy, a ServerApp no mod: each is loaded when it is asked for."""
    if name in _HOMES:
        return getattr(import_module(f"fedskew.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fedskew.flower' has no attribute {name!r}")
