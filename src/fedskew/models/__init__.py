"""The models of the five papers and some that people expect, by name.

``build("mlp", (28, 28), 10)`` gives a ``torch.nn.Module`` that returns logits.

A factory is ``factory(shape, num_classes, *, options) -> Module``; its keyword-only arguments, and
``head`` and ``head_init`` of :func:`build`, are the options of a recipe's ``[model]`` table.
Start values come from torch's default generator as it stands at the call. Importing this package
does not import torch: the factories do, when they are called.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter, signature
from typing import Any

from fedskew.errors import RecipeError, did_you_mean
from fedskew.models.border import Factory, Module, count_features
from fedskew.models.cnn import (
    cnn_bacsa,
    cnn_cifar_bn,
    cnn_fmnist,
    cnn_lenet,
    cnn_mcmahan,
    cnn_similarity,
    cnn_small,
)
from fedskew.models.head import Head, HeadInit, bacsa_constant, find_head, fix_head, set_head
from fedskew.models.linear import logistic
from fedskew.models.mlp import mlp, mlp500, tiny_mlp
from fedskew.models.resnet import resnet8, resnet18
from fedskew.models.text import embedding, lstm, transformer

__all__ = ["MODELS", "Factory", "Head", "HeadInit", "bacsa_constant", "build", "find_head"]

MODELS: dict[str, Factory] = {
    "tiny_mlp": tiny_mlp,
    "mlp": mlp,
    "mlp500": mlp500,
    "logistic": logistic,
    "cnn_bacsa": cnn_bacsa,
    "cnn_lenet": cnn_lenet,
    "cnn_similarity": cnn_similarity,
    "cnn_mcmahan": cnn_mcmahan,
    "cnn_fmnist": cnn_fmnist,
    "cnn_cifar_bn": cnn_cifar_bn,
    "cnn_small": cnn_small,
    "resnet8": resnet8,
    "resnet18": resnet18,
    "embedding": embedding,
    "lstm": lstm,
    "transformer": transformer,
}


def build(
    model: str | Factory,
    shape: Sequence[int],
    num_classes: int,
    *,
    head_init: HeadInit = "default",
    head: Head = "trained",
    **options: Any,
) -> Module:
    """A fresh model for examples of this shape, by name or from a factory of your own.

    ``head_init="bacsa"`` starts the output layer at BACSA's constant (see
    :mod:`fedskew.models.head`), whatever the model; ``head="frozen"`` does not train it,
    ``head="etf"`` puts a fixed simplex in its place.

    >>> build("mpl", (28, 28), 10)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedskew.errors.RecipeError: model: there is no model 'mpl'. Did you mean 'mlp'?...
    """
    factory = MODELS.get(model) if isinstance(model, str) else model
    if factory is None:
        raise RecipeError("model", f"there is no model {model!r}", did_you_mean(str(model), MODELS))
    _check(factory, shape, num_classes, options)
    sizes = tuple(int(size) for size in shape)
    module = factory(sizes, num_classes, **options)
    set_head(module, count_features(sizes), head_init)
    return fix_head(module, head)


def _check(
    factory: Factory, shape: Sequence[int], num_classes: int, options: dict[str, Any]
) -> None:
    """The mistakes every factory would otherwise have to look for."""
    where = f"model {getattr(factory, '__name__', factory)}"
    if not shape or min(shape) < 1:
        raise RecipeError(
            where, f"one example has shape {tuple(shape)}", "Every side must be at least 1"
        )
    if num_classes < 2:
        raise RecipeError(where, f"num_classes is {num_classes}", "A classifier needs at least 2")
    known = signature(factory).parameters
    if any(option.kind is Parameter.VAR_KEYWORD for option in known.values()):
        return
    names = [name for name, option in known.items() if option.kind is Parameter.KEYWORD_ONLY]
    for name in options:
        if name not in names:
            raise RecipeError(where, f"has no option {name!r}", did_you_mean(name, names))
