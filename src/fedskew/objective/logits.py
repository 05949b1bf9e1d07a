"""What an objective does to logits before the cross-entropy is taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedskew.types import Floats
from fedskew.types.arrays import freeze


@dataclass(frozen=True)
class LogitChange:
    """Logit c becomes ``scale[c] * logit + shift[c]``; None leaves all of them as they are."""

    shift: Floats | None = None  # (C,)
    scale: Floats | None = None  # (C,)

    def __post_init__(self) -> None:
        freeze(self, shift=np.float64, scale=np.float64)

    @property
    def is_none(self) -> bool:
        """Whether the loss is plain cross-entropy."""
        return self.shift is None and self.scale is None
