"""Several trained bodies side by side under one output layer: the model of FedConcat's second act.

Bodies are not trained: they stay in evaluation mode, and neither their weights nor their BatchNorm
statistics are part of the vector that travels.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn

from fedskew.runtime.local.flat import layout_of
from fedskew.types import Params


class SideBySide:
    """A factory: bodies with the weights of ``models`` (S, D), made by ``factory``, and a fresh
    output layer over all their features.
    """

    def __init__(self, factory: Callable[[], nn.Module], models: Params) -> None:
        self._factory, self._models = factory, models

    def __call__(self) -> nn.Module:
        """Built anew; parts of a body that were never trained are as this seed builds them."""
        first = self._factory()
        return Concatenated([with_weights(deepcopy(first), vector) for vector in self._models])


class Concatenated(nn.Module):
    """All bodies see the example; one linear layer sees what they make of it."""

    def __init__(self, models: list[nn.Module]) -> None:
        super().__init__()
        heads = [_last_linear(model)[2] for model in models]
        self.bodies = nn.ModuleList(_without_head(model) for model in models)
        self.bodies.requires_grad_(False)
        for part in self.bodies.modules():
            part._non_persistent_buffers_set.update(part._buffers)
        width = sum(head.in_features for head in heads)
        self.head = nn.Linear(width, heads[0].out_features)

    def train(self, mode: bool = True) -> Concatenated:
        """Bodies stay as they are scored."""
        super().train(mode)
        self.bodies.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, C)."""
        with torch.no_grad():
            features = torch.cat([body(x).flatten(1) for body in self.bodies], dim=1)
        logits: Tensor = self.head(features)
        return logits


def with_weights(module: nn.Module, vector: Params) -> nn.Module:
    """The module with its trained weights and buffers from a flat vector."""
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, values in layout_of(module).unpack(vector).items():
        named[name].data.copy_(torch.from_numpy(values.copy()))
    return module


def _without_head(module: nn.Module) -> nn.Module:
    """The module up to what reaches its output layer."""
    parent, name, _ = _last_linear(module)
    if parent is None:
        return nn.Identity()
    setattr(parent, name, nn.Identity())
    return module


def _last_linear(module: nn.Module) -> tuple[nn.Module | None, str, nn.Linear]:
    """The output layer, and whose child it is under which name."""
    if isinstance(module, nn.Linear):
        return None, "", module
    found = [
        (part, name, child)
        for part in module.modules()
        for name, child in part.named_children()
        if isinstance(child, nn.Linear)
    ]
    last = [child for child in module.modules() if isinstance(child, nn.Linear)][-1]
    return next(place for place in found if place[2] is last)
