"""Names for arrays, and how to make them read-only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
Params: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Ids: TypeAlias = Sequence[int] | NDArray[np.int64]  # client numbers, or slot numbers
# what a stage remembers between rounds: arrays, numbers, strings, nested by name
Memory: TypeAlias = Mapping[str, Any]


def frozen(array: ArrayLike, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """A read-only view (a copy only if the dtype must change).

    >>> frozen([1, 2], np.float64).flags.writeable
    False
    """
    view = np.asarray(array, dtype).view()
    view.flags.writeable = False
    return view


def freeze(value: object, **dtypes: DTypeLike) -> None:
    """Make named array fields of a frozen dataclass read-only, of these dtypes; None stays None."""
    for name, dtype in dtypes.items():
        given = getattr(value, name)
        if given is not None:
            object.__setattr__(value, name, frozen(given, dtype))
