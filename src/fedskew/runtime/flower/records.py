"""Values to and from the records of a Flower message.

Every message of ours, both ways, holds a ConfigRecord ``fedskew`` that says what it is (format,
kind, and a fingerprint of the model's layout), so that a foreign, an older or a mismatched one is
refused where it arrives, and at most one ArrayRecord ``arrays``. Small values are JSON text in that
ConfigRecord: Flower averages MetricRecords, and ids must never be averaged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from fedskew.errors import RunError
from fedskew.runtime.border import shown
from fedskew.runtime.flower.undocumented import NUMPY
from fedskew.runtime.flower.wire import DIMENSIONS, DTYPES, read_array, read_values
from fedskew.types import Layout
from fedskew.version import __version__

FORMAT = "fedskew/2"  # changes when messages change; both sides must agree
HEAD, ARRAYS = "fedskew", "arrays"
OTHER_MODEL = "is for a model of another layout"


class ForeignMessage(RunError):
    """A message that is not ours, or does not fit this side."""


@dataclass(frozen=True)
class Note:
    """The content of one message: what it is, small values, arrays by name."""

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    layout: str = ""  # fingerprint of the sender's model; "" where no model is meant

    @property
    def payload_bytes(self) -> int:
        """What the arrays weigh."""
        return sum(array.nbytes for array in self.arrays.values())


def layout_mark(layout: Layout) -> str:
    """A short fingerprint of a model's shape: names, shapes and kinds of its tensors.

    >>> two = Layout.of([("w", (2,), "weight")])
    >>> three = Layout.of([("w", (3,), "weight")])
    >>> layout_mark(two) == layout_mark(three)
    False
    """
    rows = [[block.name, list(block.shape), block.kind] for block in layout.blocks]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


def to_records(note: Note) -> RecordDict:
    """A note as Flower carries it."""
    head = {"format": FORMAT, "version": __version__, "kind": note.kind, "layout": note.layout}
    records = RecordDict({HEAD: ConfigRecord({**head, "values": json.dumps(note.values)})})
    if note.arrays:
        records[ARRAYS] = ArrayRecord(
            {name: Array(np.ascontiguousarray(array)) for name, array in note.arrays.items()}
        )
    return records


def from_records(records: RecordDict, kind: str, layout: str = "") -> Note:
    """The note behind a message of this kind and, where a model is in it, of this layout; anything
    else is refused.

    >>> from_records(RecordDict(), "train")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedskew.runtime.flower.records.ForeignMessage: message: is not one of fedskew's. Run ...
    """
    head = records.config_records.get(HEAD)
    if head is None or not isinstance(head.get("format"), str):
        raise ForeignMessage("message", "is not one of fedskew's", "Run fedskew on both sides")
    if head["format"] != FORMAT:
        what = (
            f"has format '{shown(head['format'])}' (fedskew {shown(head.get('version'))}), "
            f"this side speaks {FORMAT!r} ({__version__})"
        )
        raise ForeignMessage("message", what, "Install the same version on both sides")
    if head.get("kind") != kind:
        what = f"is a '{shown(head.get('kind'))}', expected a {kind!r}"
        raise ForeignMessage("message", what, "Run the same app on both sides")
    if layout and head.get("layout") != layout:
        what = f"{OTHER_MODEL} ({shown(head.get('layout'))}, here {layout})"
        raise ForeignMessage("message", what, "Build the same model on both sides")
    try:
        values = read_values(head.get("values"))
        arrays = {shown(name): plain_array(array) for name, array in _arrays(records).items()}
    except ValueError as error:
        what = f"is damaged ({shown(str(error))})"
        raise ForeignMessage("message", what, "Run the same version on both sides") from None
    return Note(kind, values, arrays, shown(head.get("layout", "")))


def _arrays(records: RecordDict) -> Mapping[str, Array]:
    found = records.array_records.get(ARRAYS)
    return {} if found is None else found


def plain_array(
    array: Array, dtypes: Collection[str] = DTYPES, dimensions: Collection[int] = DIMENSIONS
) -> NDArray[Any]:
    """What is in one of Flower's arrays, whose own reading allocates what the header claims; raises
    ValueError.
    """
    if array.stype != NUMPY:
        raise ValueError(f"an array of kind {shown(array.stype)}")
    return read_array(array.data, dtypes, dimensions)
