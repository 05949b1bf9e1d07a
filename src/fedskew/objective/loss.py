"""What a client minimises, as a value: no torch here, whoever trains computes it.

    CE(scale * z + shift, y)  +  what the received model teaches  +  what presses logits down

z are the model's own logits (n, C) of a batch, y the labels. All parts but the first are optional.
The gradient of each at the logits is a formula, so the fast paths need no autograd for it
(:mod:`fedskew.runtime.local.criterion`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedskew.types import Bools, Floats
from fedskew.types.arrays import freeze


@dataclass(frozen=True)
class Distillation:
    """Adds ``weight * KL(softmax(received / T) || softmax(z / T))``, the mean over a batch.

    Both softmaxes run over ``classes`` only, and with ``not_true`` without each example's own
    class. The received model is the one the client began with, tested as it stands (no dropout, its
    own BatchNorm statistics): along a chain that is the model of the client before, not the
    server's.
    """

    weight: float
    temperature: float = 1.0
    classes: Bools | None = None  # (C,) None = all
    not_true: bool = False

    def __post_init__(self) -> None:
        freeze(self, classes=np.bool_)


@dataclass(frozen=True)
class Suppression:
    """Adds ``sum_c weight[c] * log(mean_i exp(z_ic + shift[c]))`` over the examples i of a batch.

    An example's own class is never pressed down: its entry counts as exp(0) = ``"one"``, which
    bounds the term from below, or is ``"left_out"`` of the mean.
    """

    weight: Floats  # (C,)
    shift: Floats  # (C,) without effect where own classes are left out
    own: Literal["one", "left_out"] = "one"

    def __post_init__(self) -> None:
        freeze(self, weight=np.float64, shift=np.float64)


@dataclass(frozen=True)
class LocalLoss:
    """The loss of one client; as it is made it is plain cross-entropy.

    >>> LocalLoss().is_plain, LocalLoss(shift=np.zeros(3)).is_plain
    (True, False)
    """

    shift: Floats | None = None  # (C,)
    scale: Floats | None = None  # (C,)
    # the sum under the logarithm of the cross-entropy leaves out each example's own class
    others_only: bool = False
    distillation: Distillation | None = None
    suppression: Suppression | None = None

    def __post_init__(self) -> None:
        freeze(self, shift=np.float64, scale=np.float64)

    @property
    def is_plain(self) -> bool:
        """Whether the loss is plain cross-entropy."""
        changed = self.shift is not None or self.scale is not None or self.others_only
        return not changed and self.distillation is None and self.suppression is None

    @property
    def only_logits(self) -> bool:
        """Whether it is a cross-entropy of changed logits, nothing more."""
        return self.distillation is None and self.suppression is None
