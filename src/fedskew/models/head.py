"""The output layer: with which values it starts, and whether it is trained.

``head_init``: torch's own values, or BACSA's constant, with which first guesses are uniform.
Paper 001 (BACSA) eq 1: every weight of the last layer = sqrt(1 / (I_f · L · M)), with I_f input
features, L the width before the last layer, M outputs; all other layers keep their usual start.
With equal rows and bias 0 the softmax is uniform at the start, so the first update of the layer
shows the client's label proportions (docs/methods.md 8.1, 8.3).

Differs from the paper: the paper does not speak of the bias; here it starts at 0, or the softmax
would not be uniform.

``head``: trained like every layer, ``"frozen"`` at its start values (FedBABU: Oh, Kim, Yun, ICLR
2022: federated rounds train the body only), or ``"etf"`` (FedETF: Li, Shang, He, Lin, Wu, ICCV
2023, eqs 3-6): a projection, features scaled to length 1, and class vectors at the corners of a
regular simplex, times a trained temperature that starts at 1. What is not trained is built alike
everywhere: it is neither sent nor charged.

Differs from the papers: FedETF projects onto as many dimensions as it likes and turns the simplex
at random; here onto C, the fewest in which it fits unturned, since the projection can learn any
turn. Its loss, balanced by n_c ** gamma, is the objective ``logit_adjusted`` (the recipe
``fedetf`` has both). FedBABU fine-tunes at each client in the end: that is the reference row
``fine_tuned``, in which the output layer stays frozen too.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Literal, TypeAlias

from fedskew.errors import RecipeError
from fedskew.models.border import Module

if TYPE_CHECKING:
    from torch.nn import Linear

HeadInit: TypeAlias = Literal["default", "bacsa"]
Head: TypeAlias = Literal["trained", "frozen", "etf"]


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


def fix_head(model: Module, head: Head) -> Module:
    """The model with an output layer that is not trained, or as it is.

    >>> from fedskew.models import build
    >>> count = lambda model: sum(p.numel() for p in model.parameters() if p.requires_grad)
    >>> [count(build("tiny_mlp", (8, 8), 10, head=head)) for head in ("trained", "frozen", "etf")]
    [2410, 2080, 2411]
    """
    if head == "trained":
        return model
    if head not in ("frozen", "etf"):
        raise RecipeError("model", f"head is {head!r}", "Known: etf, frozen, trained")
    layer = find_head(model)
    if head == "etf":
        from fedskew.models._layers import SimplexHead

        return _with_layer(model, layer, SimplexHead(layer))
    layer.requires_grad_(False)
    if not any(weight.requires_grad for weight in model.parameters()):
        what = "nothing is left to train under a frozen output layer"
        raise RecipeError("model.head", what, "Use a model with hidden layers")
    return model


def _with_layer(model: Module, old: Module, new: Module) -> Module:
    """The model with one of its parts exchanged."""
    if model is old:
        return new
    for part in list(model.modules()):
        for name, child in part.named_children():
            if child is old:
                setattr(part, name, new)
                return model
    raise AssertionError("the layer is not a part of the model")
