"""Residual networks with group norms, for small images (He, Zhang, Ren, Sun, CVPR 2016).

Batch norms keep statistics that differ from client to client under label skew, and averaging them
hurts (Hsieh, Phanishayee, Mutlu, Gibbons, ICML 2020); group norms (Wu, He, ECCV 2018) keep none.

Differs from the paper: the first layer is a 3x3 convolution without a pool, as is usual for 32x32
images; norms have 8 groups.
"""

from __future__ import annotations

from fedskew.models.border import Module, Shape, read_image


def resnet8(shape: Shape, num_classes: int) -> Module:
    """One block each of 16, 32 and 64 channels: 78,042 weights on CIFAR-10."""
    return _resnet("resnet8", shape, num_classes, channels=(16, 32, 64), blocks=1)


def resnet18(shape: Shape, num_classes: int) -> Module:
    """Two blocks each of 64, 128, 256 and 512 channels: 11,173,962 weights on CIFAR-10."""
    return _resnet("resnet18", shape, num_classes, channels=(64, 128, 256, 512), blocks=2)


def _resnet(
    name: str, shape: Shape, num_classes: int, *, channels: tuple[int, ...], blocks: int
) -> Module:
    from torch import nn

    from fedskew.models._layers import ChannelsLast
    from fedskew.models._residual import ResidualBlock, group_norm

    colours, _, _ = read_image(f"model {name}", shape)
    first = nn.Conv2d(colours, channels[0], 3, padding=1, bias=False)
    layers: list[nn.Module] = [ChannelsLast(), first, group_norm(channels[0]), nn.ReLU()]
    before = channels[0]
    for stage, after in enumerate(channels):
        for place in range(blocks):
            stride = 2 if stage and not place else 1
            layers.append(ResidualBlock(before, after, stride))
            before = after
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, num_classes)
    )
