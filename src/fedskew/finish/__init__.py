"""What is done after the last round, if the recipe has a ``[finish]``.

A plain function ``finish(moments, weight, bias, rng, *, options) -> weight, bias``, or a frozen
dataclass that derives from :class:`fedskew.types.CalibrationRule`, fits the output layer anew; one
that derives from :class:`fedskew.types.SecondActRule` trains a new one over the bodies of several
models.

- ``ccvr.py``: an output layer fitted to virtual features
- ``fedconcat.py``: the clusters' bodies side by side under one output layer
"""

from __future__ import annotations

from typing import Any

from fedskew.finish.ccvr import CCVR
from fedskew.finish.fedconcat import FedConcat

FINISHES: dict[str, Any] = {"ccvr": CCVR, "fedconcat": FedConcat}
