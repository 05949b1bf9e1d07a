"""The output layer's start values: torch's own, or BACSA's constant: first guesses uniform.

Paper 001 (BACSA) eq 1: every weight of the last layer = sqrt(1 / (I_f · L · M)), with I_f input
features, L the width before the last layer, M outputs; all other layers keep their usual start.
With equal rows and bias 0 the softmax is uniform at the start, so the first update of the layer
shows the client's label proportions (docs/methods.md 8.1, 8.3).

Differs from the paper: the paper does not speak of the bias; here it starts at 0, or the softmax
would not be uniform.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Literal, TypeAlias

from fedskew.errors import RecipeError
from fedskew.models.border import Module

if TYPE_CHECKING:
    from torch.nn import Linear

HeadInit: TypeAlias = Literal["default", "bacsa"]


def bacsa_constant(num_features: int, width: int, num_classes: int) -> float:
    """The start value of eq 1.

    >>> round(bacsa_constant(32 * 32 * 3, 192, 10), 6)
    0.000412
    """
    return sqrt(1 / (num_features * width * num_classes))


def find_head(model: Module) -> Linear:
    """The output layer: the linear layer registered last."""
    from torch import nn

    linears = [part for part in model.modules() if isinstance(part, nn.Linear)]
    if not linears:
        raise RecipeError("model", "has no linear output layer to set", 'Use head_init = "default"')
    return linears[-1]


def set_head(model: Module, num_features: int, head_init: HeadInit) -> None:
    """Overwrite the output layer's start values in place.

    It draws nothing, so the other layers do not depend on the choice.
    """
    if head_init == "default":
        return
    if head_init != "bacsa":
        raise RecipeError("model", f"head_init is {head_init!r}", "Known: bacsa, default")
    from torch import nn

    head = find_head(model)
    nn.init.constant_(
        head.weight, bacsa_constant(num_features, head.in_features, head.out_features)
    )
    if head.bias is not None:
        nn.init.zeros_(head.bias)
