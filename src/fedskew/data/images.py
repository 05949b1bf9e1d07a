"""Images with channels first or last: recognised where it is certain, else asked about."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

Channels: TypeAlias = Literal["first", "last"]
USUAL = (1, 3, 4)  # channels of grey and coloured images
ASK = "Say which: data=fedskew.data.from_arrays(x, y, channels='first'), or 'last'"


def channels_last(
    x: NDArray[Any], where: str, channels: Channels | None = None, taken: int | None = None
) -> NDArray[Any]:
    """Images as (N, H, W, C), whatever came, grey pixels as (N, H, W); other arrays as they are.

    ``channels`` says how they came; else it is found out by ``taken``, the channels that the model
    takes, else by the usual numbers of channels, else by a square.

    >>> channels_last(np.zeros((5, 3, 32, 32)), "data").shape
    (5, 32, 32, 3)
    >>> channels_last(np.zeros((5, 7, 7, 9)), "data", taken=7).shape
    (5, 7, 9, 7)
    """
    if x.ndim != 4:
        return x
    if (channels or _found(x.shape[1:], where, taken)) == "first":
        x = np.ascontiguousarray(np.moveaxis(x, 1, 3))
    return x[..., 0] if x.shape[3] == 1 and x.dtype == np.uint8 else x


def _found(shape: tuple[int, ...], where: str, taken: int | None) -> Channels:
    """Where the channels of an image of this shape are."""
    first, last = (
        size == taken if taken is not None else size in USUAL for size in (shape[0], shape[2])
    )
    if taken is None and first == last:  # then two equal sides are height and width
        first, last = shape[1] == shape[2], shape[0] == shape[1]
    if first != last:
        return "first" if first else "last"
    if taken is not None and not first:
        what = f"images are {shape}, and the model takes {taken} channels"
        raise DataError(where, what, "Give images or a model that fit")
    raise DataError(where, f"in images of {shape} channels may come first or last", ASK)
