"""The table ``[trust]``."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedskew.errors import RecipeError


@dataclass(frozen=True)
class Trust:
    """``[trust]``: whether what clients say is checked, and how strictly."""

    on: bool = False
    # nobody trains more often than this many times the mean; 0 = no limit
    cap: float = 2.0
    # a label mix that is claimed is checked by a short training, once, charged
    probe: bool = True
    # total variation between a claimed label mix and the client's own update, above noise
    mix_gap: float = 0.05
    # a loss this many times what others have, and what its own update shows, is not believed
    loss_factor: float = 3.0
    # whether updates of the output layer show anything: not if it is not trained
    head_trained: bool = field(default=True, metadata={"table": "model"})

    def __post_init__(self) -> None:
        if self.cap and self.cap < 1:
            what = f"{self.cap}: not even the mean could be reached"
            raise RecipeError("trust.cap", what, "Give at least 1, or 0 for no limit")
        if not 0 < self.mix_gap <= 1:
            what = f"{self.mix_gap} is no distance of label mixes"
            raise RecipeError("trust.mix_gap", what, "Give a number above 0, at most 1")
        if self.loss_factor <= 1:
            what = f"{self.loss_factor} would doubt half of all clients"
            raise RecipeError("trust.loss_factor", what, "Give a number above 1, for example 3")
