"""Clock models: kinds of devices, each with its delays, trips and rates.

``draw(rng, size) -> DeviceTimes`` draws one device for each client. ``devices.classes`` names one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedskew.accounting.device_classes.haccs import haccs
from fedskew.accounting.device_classes.times import DeviceTimes

__all__ = ["DEVICE_CLASSES", "DeviceTimes"]

DEVICE_CLASSES: dict[str, Callable[[np.random.Generator, int], DeviceTimes]] = {
    "haccs": haccs,
}
