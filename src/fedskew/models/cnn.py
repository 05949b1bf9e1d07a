"""Convolutional networks of papers 001 to 004, one factory each (docs/methods.md 10).

They take (H, W) and (H, W, C) images of any size.

Papers 001, 002 and 003 do not give their widths; docs/methods.md 10 says how each was read. All
layers start as torch starts them.

Differs from the papers:

- max pool before ReLU, which is faster. The largest of four, cut at 0, is the same either way, and
  so is its gradient.
- ``cnn_cifar_bn`` has torch's batch normalisation (running statistics move by 0.1, not Keras's
  0.01, per batch), and a batch of one example passes its dense norm on the running statistics.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias

from fedskew.errors import RecipeError
from fedskew.models.border import Module, Shape, check_rates, check_sizes, read_image

if TYPE_CHECKING:
    from torch import nn

Padding: TypeAlias = Literal["valid", "same"]


def cnn_bacsa(shape: Shape, num_classes: int) -> Module:
    """Two 5x5 convolutions of 64, three dense layers (paper 001): 797,962 weights on CIFAR-10."""
    return _plain("cnn_bacsa", shape, num_classes, channels=(64, 64), hidden=(384, 192))


def cnn_lenet(shape: Shape, num_classes: int) -> Module:
    """LeNet, 6/16-120-84 (papers 001 and 003 on a CPU): 62,006 weights on CIFAR-10.

    On MNIST 44,426: the NIID-Bench model.
    """
    return _plain("cnn_lenet", shape, num_classes, channels=(6, 16), hidden=(120, 84))


def cnn_similarity(
    shape: Shape, num_classes: int, *, pool: Literal["each", "last"] = "each"
) -> Module:
    """Two 5x5 convolutions of 10 and 20, then 50 (paper 002): 21,840 weights on MNIST.

    ``pool="last"`` takes the paper's "followed by a 2x2 max pooling layer" literally, one pool in
    all: 105,840 weights.
    """
    if pool not in ("each", "last"):
        raise RecipeError("model cnn_similarity", f"pool is {pool!r}", "Known: each, last")
    pools = (pool == "each", True)
    return _plain(
        "cnn_similarity", shape, num_classes, channels=(10, 20), hidden=(50,), pools=pools
    )


def cnn_mcmahan(shape: Shape, num_classes: int) -> Module:
    """The CNN of McMahan et al. 2017 (FedAvg): 1,663,370 weights on MNIST.

    32/64 with same padding, then 512.
    """
    return _plain(
        "cnn_mcmahan", shape, num_classes, channels=(32, 64), hidden=(512,), padding="same"
    )


def cnn_fmnist(shape: Shape, num_classes: int, *, padding: Padding = "valid") -> Module:
    """Three 3x3 convolutions 8/16/32, then 2048 (paper 004): 93,962 weights on Fashion-MNIST.

    With ``padding = "same"`` 618,250.
    """
    return _plain(
        "cnn_fmnist",
        shape,
        num_classes,
        channels=(8, 16, 32),
        hidden=(2048,),
        kernel=3,
        padding=padding,
    )


def cnn_small(
    shape: Shape, num_classes: int, *, channels: tuple[int, ...] = (8, 16, 32), hidden: int = 64
) -> Module:
    """A small 3x3 network for the 64x64 chest X-rays: 137,934 weights.

    Same padding; every layer halves the image.
    """
    check_sizes("model cnn_small", channels=tuple(channels), hidden=hidden)
    return _plain(
        "cnn_small",
        shape,
        num_classes,
        channels=tuple(channels),
        hidden=(hidden,),
        kernel=3,
        padding="same",
    )


def cnn_cifar_bn(
    shape: Shape, num_classes: int, *, dropout: tuple[float, ...] = (0.2, 0.3, 0.4, 0.5)
) -> Module:
    """Three blocks of two 3x3 convolutions (paper 004): 551,722 weights on CIFAR-10.

    With batch normalisation; then 128.

    Besides the weights it carries 1,152 running statistics and seven batch counters. ``dropout``:
    one rate per block, then the dense layer's.
    """
    from torch import nn

    from fedskew.models._layers import ChannelsLast, LoneBatchNorm

    rates = tuple(dropout)
    check_rates("model cnn_cifar_bn", dropout=rates)
    if len(rates) != 4:
        raise RecipeError(
            "model cnn_cifar_bn",
            f"dropout = {rates} holds {len(rates)} rates",
            "Give four: three blocks, dense",
        )
    depth, height, width = _fit("model cnn_cifar_bn", shape, 8)
    layers: list[nn.Module] = [ChannelsLast()]
    for channels, rate in zip((32, 64, 128), rates[:3], strict=True):
        layers += [
            *_normed(depth, channels),
            *_normed(channels, channels),
            nn.MaxPool2d(2),
            nn.Dropout(rate),
        ]
        depth = channels
    dense = [
        nn.Linear(depth * (height // 8) * (width // 8), 128),
        nn.ReLU(),
        LoneBatchNorm(128),
        nn.Dropout(rates[3]),
    ]
    return nn.Sequential(*layers, nn.Flatten(), *dense, nn.Linear(128, num_classes))


def _normed(depth: int, channels: int) -> list[nn.Module]:
    """Convolution, ReLU, then the norm: the order of the authors' code (docs/methods.md 10)."""
    from torch import nn

    return [nn.Conv2d(depth, channels, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(channels)]


def _plain(
    name: str,
    shape: Shape,
    num_classes: int,
    *,
    channels: tuple[int, ...],
    hidden: tuple[int, ...],
    kernel: int = 5,
    padding: Padding = "valid",
    pools: tuple[bool, ...] | None = None,
) -> Module:
    """Convolutions with a 2x2 max pool behind each (or as ``pools`` says), then dense layers."""
    from torch import nn

    from fedskew.models._layers import ChannelsLast

    if padding not in ("valid", "same"):
        raise RecipeError(f"model {name}", f"padding is {padding!r}", "Known: same, valid")
    pools = pools or (True,) * len(channels)
    edge = kernel // 2 if padding == "same" else 0
    lost = kernel - 1 - 2 * edge  # pixels a convolution takes from each side's length
    depth, height, width = _fit(f"model {name}", shape, _smallest(pools, lost))
    # Milliseconds per SGD step, batch 64, one thread of an AVX2 EPYC, torch 2.13: contiguous /
    # channels last. ReLU first: cnn_similarity 14.6 / 9.7, cnn_small 61 / 36, cnn_bacsa 103 / 83;
    # pool first: 13.0 / 7.7, 57 / 29, 102 / 81.
    layers: list[nn.Module] = [ChannelsLast()]
    for size, pool in zip(channels, pools, strict=True):
        layers.append(nn.Conv2d(depth, size, kernel, padding=edge))
        height -= lost
        width -= lost
        depth = size
        if pool:
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
        layers.append(nn.ReLU())
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        *_dense((depth * height * width, *hidden)),
        nn.Linear(hidden[-1], num_classes),
    )


def _dense(widths: tuple[int, ...]) -> list[nn.Module]:
    from torch import nn

    return [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]


def _smallest(pools: tuple[bool, ...], lost: int) -> int:
    """The least height or width that leaves one pixel behind the last convolution or pool."""
    size = 1
    for pool in reversed(pools):
        size = size * (2 if pool else 1) + lost
    return size


def _fit(where: str, shape: Shape, smallest: int) -> tuple[int, int, int]:
    """The image as (channels, height, width), if it is large enough."""
    depth, height, width = read_image(where, shape)
    if min(height, width) < smallest:
        remedy = f"It needs at least {smallest}x{smallest}; an MLP takes any size"
        raise RecipeError(
            where, f"a {height}x{width} image is too small for its convolutions and pools", remedy
        )
    return depth, height, width
