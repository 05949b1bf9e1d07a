"""Fully connected networks with ReLU between the layers, for images and tables.

``mlp`` is paper 000's "two hidden layers (200 neurons)", ``mlp500`` paper 004's network for
Serengeti (docs/methods.md 10). All are one plain ``nn.Sequential`` of Flatten, Linear, ReLU, ...,
Linear, so that a runtime can recognise the pattern and train it faster.
"""

from __future__ import annotations

from fedskew.models.border import Module, Shape, check_sizes, count_features


def mlp(shape: Shape, num_classes: int, *, hidden: tuple[int, ...] = (200, 200)) -> Module:
    """Any stack of hidden layers; 784-200-200-10 has 199,210 weights.

    ``hidden=(100, 100)`` (89,610 weights) reads paper 000's "200 neurons" as the total over both
    layers.
    """
    from torch import nn

    hidden = tuple(hidden)
    check_sizes("model mlp", hidden=hidden)
    layers: list[nn.Module] = [nn.Flatten()]
    width = count_features(shape)
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, num_classes))


def mlp500(shape: Shape, num_classes: int) -> Module:
    """Three hidden layers of 500 (paper 004, Serengeti): 508,013 + 500·d weights for 13 classes."""
    return mlp(shape, num_classes, hidden=(500, 500, 500))


def tiny_mlp(shape: Shape, num_classes: int) -> Module:
    """One hidden layer of 32: on 8x8 digits 64-32-10, 2,410 weights, for tests and first steps."""
    return mlp(shape, num_classes, hidden=(32,))
