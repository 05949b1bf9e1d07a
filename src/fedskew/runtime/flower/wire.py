"""Text and bytes of a message as values, without believing what they say of themselves.

Text is read up to a length and a depth; an array has as many numbers as it has bytes, or it is
refused. So whatever is claimed, nothing is allocated for it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_TEXT = 1 << 20  # characters of a message's values: 10,000 scores are 600,000
DEEPEST = 16  # brackets within brackets; ours are 5 deep
DTYPES = {"<f4", "<f8", "<u4"}  # models and losses, noised counts, exact counts

DIMENSIONS = (1, 2)
# what apps of others send besides: half and double precision, counters, flags
ANY_DTYPES = DTYPES | {"<f2", "<i2", "<i4", "<i8", "<u2", "<u8", "|b1", "|i1", "|u1"}
ANY_DIMENSIONS = range(9)

# numpy's own format, version 1.0, in the form numpy writes it
NPY = re.compile(
    rb"\x93NUMPY\x01\x00(?s:(..))"
    rb"\{'descr': '([<|>=]?[a-zA-Z]\d{1,4})', 'fortran_order': (False|True), "
    rb"'shape': \(([\d, ]{0,180})\), \} *\n"
)
MOST_HEADER = 512
# a string, also one that never ends: a pattern that could fail would be tried from every quote on
TEXT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}


def read_values(text: Any) -> dict[str, Any]:
    """The table that a JSON text is; raises ValueError for anything else.

    >>> read_values('{"votes": [3, 1]}')
    {'votes': [3, 1]}
    >>> read_values("[" * 100_000)
    Traceback (most recent call last):
    ValueError: its values are nested too deep
    """
    if not isinstance(text, str):
        raise ValueError("its values are no text")
    if len(text) > MOST_TEXT:
        raise ValueError(f"its values are {len(text)} characters long")
    if depth(text) > DEEPEST:
        raise ValueError("its values are nested too deep")
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("its values are no table")
    return values


def depth(text: str) -> int:
    """How deep brackets are nested in a JSON text, or an upper bound of it.

    >>> depth('{"a": [[1], [2]], "b": "[[[["}'), depth("[[]]" * 20)
    (8, 2)
    """
    brackets = text.count("[") + text.count("{")
    if brackets <= DEEPEST:
        return brackets
    steps = [STEPS[sign] for sign in TEXT.sub("", text) if sign in STEPS]
    return max(accumulate(steps), default=0)


def read_array(
    data: bytes, dtypes: Collection[str] = DTYPES, dimensions: Collection[int] = DIMENSIONS
) -> NDArray[Any]:
    """The array behind numpy's format, on the memory it came in; raises ValueError for anything
    but a plain one of these types and numbers of dimensions.

    >>> from io import BytesIO
    >>> np.save(file := BytesIO(), np.array([1, 2], np.float32)); read_array(file.getvalue())
    array([1., 2.], dtype=float32)
    >>> huge = b"(1152921504606846976,), }"
    >>> read_array(file.getvalue().replace(b"(2,), }".ljust(len(huge)), huge))
    Traceback (most recent call last):
    ValueError: an array of 1152921504606846976 numbers in 8 bytes
    """
    head = NPY.match(data[:MOST_HEADER])
    shape = None if head is None else _shape(head[4].decode())
    if head is None or shape is None or head.end() != 10 + int.from_bytes(head[1], "little"):
        raise ValueError("an array in another format than numpy's")
    if len(shape) not in dimensions:
        raise ValueError(f"an array of {len(shape)} dimensions")
    kind = head[2].decode()
    if kind not in dtypes:
        raise ValueError(f"an array of type {kind}")
    dtype = np.dtype(kind)
    numbers, room = math.prod(shape), len(data) - head.end()
    if numbers * dtype.itemsize != room or max(shape, default=0) > room:
        raise ValueError(f"an array of {numbers} numbers in {room} bytes")
    flat = np.frombuffer(data, dtype, offset=head.end())
    return flat.reshape(shape, order="F" if head[3] == b"True" else "C")


def _shape(text: str) -> tuple[int, ...] | None:
    """The shape that numpy wrote like this; None: numpy did not write it.

    >>> _shape("2, 3"), _shape("4,"), _shape(""), _shape("2,3")
    ((2, 3), (4,), (), None)
    """
    sizes = re.findall(r"\d{1,20}", text)
    shape = tuple(int(size) for size in sizes)
    return shape if repr(shape) == f"({text})" else None
