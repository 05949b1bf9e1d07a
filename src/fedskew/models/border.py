"""What a model factory takes and gives, and the checks every family shares; without torch.

``shape`` is one raw example as the data package stores it: ``(H, W)`` or ``(H, W, C)`` an image,
``(d,)`` a table row, ``(L,)`` token ids. A table row and a token row look alike, so only the recipe
can tell them apart.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from fedskew.errors import RecipeError

if TYPE_CHECKING:
    from torch.nn import Module as Module
else:  # recipes read the factories' annotations where torch is not installed
    Module = Any

Shape: TypeAlias = tuple[int, ...]
Factory: TypeAlias = Callable[..., Module]  # (shape, num_classes, *, options) -> Module


def count_features(shape: Shape) -> int:
    """How many numbers one example holds.

    >>> count_features((32, 32, 3))
    3072
    """
    return prod(shape)


def read_image(where: str, shape: Shape) -> tuple[int, int, int]:
    """(channels, height, width) of an image shape; anything else is refused.

    >>> read_image("model", (28, 28)), read_image("model", (32, 30, 3))
    ((1, 28, 28), (3, 32, 30))
    """
    if len(shape) not in (2, 3):
        raise RecipeError(
            where,
            f"wants images, but one example has shape {shape}",
            "Use an MLP, linear or text model",
        )
    if len(shape) == 3 and shape[2] > 4:
        raise RecipeError(
            where,
            f"an image of shape {shape} would have {shape[2]} channels",
            "Store images as (H, W, C)",
        )
    return (shape[2] if len(shape) == 3 else 1), shape[0], shape[1]


def read_length(where: str, shape: Shape) -> int:
    """How many token ids one example holds; images are refused.

    >>> read_length("model", (100,))
    100
    """
    if len(shape) != 1:
        raise RecipeError(
            where,
            f"wants rows of token ids, but one example has shape {shape}",
            "Use a CNN or MLP for images",
        )
    return shape[0]


def check_sizes(where: str, **sizes: int | tuple[int, ...]) -> None:
    """Refuse a width, depth or vocabulary below 1.

    >>> check_sizes("mlp", hidden=(9, 0))
    Traceback (most recent call last):
    ...
    fedskew.errors.RecipeError: mlp: hidden = (9, 0) holds a size below 1. Use whole numbers from 1.
    """
    for name, size in sizes.items():
        if min(size if isinstance(size, tuple) else (size,), default=1) < 1:
            raise RecipeError(
                where, f"{name} = {size} holds a size below 1", "Use whole numbers from 1"
            )


def check_memory(where: str, numbers: int, what: str) -> None:
    """Refuse a table that training could not hold in the machine's memory.

    That is the table itself, its gradient and two of an optimiser.

    >>> check_memory("model lstm", 10**12, "vocab x width")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedskew.errors.RecipeError: model lstm: vocab x width = 1,000,000,000,000 needs 16,000 GB ...
    """
    needed = 16 * numbers
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > memory:
        needs = f"{what} = {numbers:,} needs {needed / 1e9:,.0f} GB of memory"
        raise RecipeError(
            where,
            f"{needs}, there are {memory / 1e9:,.0f}",
            "Use a smaller vocabulary or narrower vectors",
        )


def check_rates(where: str, **rates: float | tuple[float, ...]) -> None:
    """Refuse a dropout rate outside [0, 1)."""
    for name, rate in rates.items():
        if any(not 0 <= one < 1 for one in (rate if isinstance(rate, tuple) else (rate,))):
            raise RecipeError(
                where, f"{name} = {rate} holds a rate outside [0, 1)", "0 turns dropout off"
            )
