"""Whatever people have their examples in, as a dataset: arrays, tensors, lists, data frames, torch
datasets, Hugging Face datasets, training and test examples each in its own way. None of those
libraries is imported here: things are known by what they can do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import DataError, foreign_file
from ..foreign import printable
from .arrays import from_arrays
from .dataset import Dataset
from .images import channels_last

WHERE = "data"
WANTED = (
    "Give (x, y), (x, y, x_test, y_test), or one or two labelled sets (train, test): torch or "
    "Hugging Face datasets, data frames with a column 'label', or pairs (x, y)"
)
LABELS = ("label", "labels", "y", "target", "targets", "class", "fine_label")
EXAMPLES = ("x", "image", "img", "images", "pixel_values", "features", "input", "input_ids")
TESTS = ("test", "validation", "valid", "val")


@dataclass(frozen=True)
class _Side:
    """Training or test examples."""

    x: NDArray[Any]
    y: NDArray[Any]
    class_names: tuple[str, ...] = ()


def from_given(given: Any, *, channels_taken: int | None = None, grey: bool = False) -> Dataset:
    """A :class:`Dataset` of anything in :data:`WANTED`.

    ``channels_taken``: by the user's model; ``grey``: floats of shape (N, H, W) are grey images,
    not series of several numbers.

    >>> from_given(([[1.0, 2.0], [3.0, 4.0]], ["a", "b"])).class_names
    ('a', 'b')
    >>> from_given({"x": np.eye(3), "y": [0, 1, 0]}).x.shape
    (3, 3)
    """
    if isinstance(given, Dataset):
        return given
    with foreign_file(DataError, WHERE, WANTED):
        train, test = _sides(given)
        x, x_test = (
            None if side is None else _images(side.x, channels_taken, grey)
            for side in (train, test)
        )
        y_test = None if test is None else test.y
        names = train.class_names
        numbered = names if _are_numbers(train, test, len(names)) else None
        assert x is not None
        dataset = from_arrays(
            x, train.y, x_test, y_test, class_names=numbered,
            num_classes=len(names) if numbered else None,
        )  # fmt: skip
        _check_some_learnable(dataset)
        return dataset


def _check_some_learnable(dataset: Dataset) -> None:
    """Refuse test examples none of whose labels anybody is trained on: labels are spelt in two
    ways, or counted from elsewhere.
    """
    if not len(dataset.y_test) or np.isin(dataset.y_test, dataset.y).any():
        return
    here, there = (
        ", ".join(printable(str(dataset.class_names[c]), 20) for c in np.unique(labels)[:3])
        for labels in (dataset.y_test, dataset.y)
    )
    what = f"none of the test labels ({here}, …) occurs in training ({there}, …)"
    raise DataError(WHERE, what, "Name classes alike in both")


def _images(x: NDArray[Any], taken: int | None, grey: bool) -> NDArray[Any]:
    if grey and x.ndim == 3 and x.dtype.kind == "f":
        return x[..., None]
    return channels_last(x, WHERE, taken=taken)


def from_torch(
    dataset: Any,
    test: Any = None,
    *,
    name: str = "custom",
    columns: Mapping[str, ArrayLike] | None = None,
) -> Dataset:
    """A :class:`Dataset` from map-style torch datasets: a length, and items that are ``(x, y)``.

    Items of shape (C, H, W) with 1, 3 or 4 channels in front become (H, W) or (H, W, C).

    >>> from_torch([([0.0, 1.0], 3), ([2.0, 5.0], 7)]).class_names
    ('3', '7')
    """
    sides = [_from_items(items) for items in (dataset, test) if items is not None]
    parts = [part for side in sides for part in (channels_last(side.x, WHERE), side.y)]
    return from_arrays(*parts, name=name, columns=columns, source="torch dataset")


def _are_numbers(train: _Side, test: _Side | None, classes: int) -> bool:
    """Whether all labels are places in a list of that many class names."""
    sides = [train] if test is None else [train, test]
    return classes > 1 and all(
        side.y.dtype.kind in "iu" and side.y.size and 0 <= side.y.min() <= side.y.max() < classes
        for side in sides
    )


# ---------------------------------------------------------------- what is training, what is test


def _sides(given: Any) -> tuple[_Side, _Side | None]:
    if isinstance(given, Mapping):
        return _named(given)
    if _is_frame(given) or (not isinstance(given, tuple) and _is_labelled(given)):
        return _labelled(given), None
    parts: Sequence[Any] = given if isinstance(given, list | tuple) else (given,)
    sets = [_is_labelled(part) for part in parts]
    match sets:
        case [True]:
            return _labelled(parts[0]), None
        case [True, True]:
            return _labelled(parts[0]), _labelled(parts[1])
        case [False, False]:
            return _pair(*parts), None
        case [False, False, False, False]:
            return _pair(*parts[:2]), _pair(*parts[2:])
        case [True, False, False]:
            return _labelled(parts[0]), _pair(*parts[1:])
        case [False, False, True]:
            return _pair(*parts[:2]), _labelled(parts[2])
        case [True, False] if _is_frame(parts[0]):  # a feature that is called like a label
            return _pair(*parts), None
    raise DataError(WHERE, f"is {_spelled(given)}", WANTED)


def _named(given: Mapping[Any, Any]) -> tuple[_Side, _Side | None]:
    """``{"train": ..., "test": ...}``, or columns ``{"x": ..., "y": ..., "x_test": ...}``."""
    if "train" in given:
        test = next((given[name] for name in TESTS if name in given), None)
        return _side(given["train"]), None if test is None else _side(test)
    plain = {str(key).lower().removesuffix("_train"): value for key, value in given.items()}
    x, y = _two_names(list(plain), "it")
    test = (f"{x}_test", f"{y}_test")
    return _pair(plain[x], plain[y]), (
        _pair(plain[test[0]], plain[test[1]]) if set(test) <= set(plain) else None
    )


def _side(given: Any) -> _Side:
    """One entry of a dict of splits."""
    return _labelled(given) if _is_labelled(given) else _pair(*given)


# ---------------------------------------------------------------- labelled sets


def _is_labelled(given: Any) -> bool:
    """Whether this holds examples together with their labels."""
    if isinstance(given, tuple):
        lengths = {_length(part) for part in given}
        return len(given) == 2 and len(lengths) == 1 and lengths != {None}
    if isinstance(given, list):
        return bool(given) and all(isinstance(item, tuple | Mapping) for item in given)
    if _is_frame(given):
        return any(str(name).lower() in LABELS for name in given.columns)
    if isinstance(given, str | bytes) or hasattr(given, "__array__") or hasattr(given, "toarray"):
        return False
    items = hasattr(given, "__getitem__") or hasattr(given, "__iter__")
    return items or _is_hub(given) or _is_loader(given)


def _labelled(given: Any) -> _Side:
    if isinstance(given, tuple):
        return _pair(*given)
    if _is_loader(given):
        return _labelled(given.dataset)
    if _is_hub(given):
        return _from_hub(given)
    if _is_frame(given):
        return _from_frame(given)
    if not hasattr(given, "__len__") or not hasattr(given, "__getitem__"):
        raise DataError(WHERE, f"is {_spelled(given)}, which has no length", "Give a list of it")
    return _from_items(given)


def _from_frame(frame: Any) -> _Side:
    columns = [str(name) for name in frame.columns]
    label = _label_name(columns, "the data frame")
    rest = [name for name in frame.columns if str(name) != label]
    return _pair(frame[rest], frame[label])


def _from_hub(table: Any) -> _Side:
    columns = list(table.column_names)
    labelled = [name for name in columns if getattr(table.features[name], "names", None)]
    x, y = _two_names(columns, "the dataset", labelled)
    names = tuple(getattr(table.features[y], "names", None) or ())
    side = _pair(_stacked(list(table[x])), list(table[y]))
    return _Side(side.x, side.y, names)


def _from_items(items: Any) -> _Side:
    """A torch dataset, or a list: items are ``(x, y)``, or dicts."""
    if not len(items):
        raise DataError(WHERE, "the dataset is empty", "Give at least one example")
    found = [items[i] for i in range(len(items))]
    if isinstance(found[0], Mapping):
        x, y = _two_names([str(key) for key in found[0]], "an item")
        found = [(item[x], item[y]) for item in found]
    odd = next((item for item in found if not isinstance(item, tuple | list)), None)
    if odd is not None or any(len(item) != 2 for item in found):
        one = odd if odd is not None else next(item for item in found if len(item) != 2)
        raise DataError(WHERE, f"an item is {_spelled(one)}, not (x, y)", WANTED)
    classes = getattr(items, "classes", None)
    names = tuple(map(str, classes)) if isinstance(classes, list | tuple) else ()
    side = _pair(_stacked([x for x, _ in found]), [np.asarray(_plain(y)).item() for _, y in found])
    return _Side(side.x, side.y, names)


def _stacked(rows: Sequence[Any]) -> NDArray[Any]:
    arrays = [np.asarray(_plain(row)) for row in rows]
    shapes = {row.shape for row in arrays}
    if len(shapes) > 1:
        what = f"items differ in shape, for example {sorted(shapes)[:2]}"
        raise DataError(WHERE, what, "Resize them to one shape")
    return np.stack(arrays)


def _two_names(names: Sequence[str], what: str, labels: Sequence[str] = ()) -> tuple[str, str]:
    """Which of these holds the examples, and which the labels."""
    y = labels[0] if len(labels) == 1 else _label_name(names, what)
    rest = [name for name in names if name != y and not name.endswith("_test")]
    known = [name for name in EXAMPLES if name in rest]
    if len(rest) != 1 and len(known) != 1:
        said = f"which of {_listed(rest)} holds the examples is not clear in {what}"
        raise DataError(WHERE, said, "Give (x, y)")
    return (rest[0] if len(rest) == 1 else known[0]), y


def _label_name(names: Sequence[str], what: str) -> str:
    found = [name for name in names if name.lower() in LABELS]
    if len(found) != 1:
        said = f"which of {_listed(names)} holds the labels is not clear in {what}"
        raise DataError(WHERE, said, "Call it 'label', or give (x, y)")
    return found[0]


# ---------------------------------------------------------------- x and y


def _pair(x: Any, y: Any) -> _Side:
    return _Side(_examples(x), _labels(y))


def _examples(x: Any) -> NDArray[Any]:
    if _is_frame(x):
        return _numbers_of(x)
    rows = np.asarray(_plain(x))
    if rows.dtype.kind == "O" and rows.ndim == 1:  # a column of arrays, or a ragged list
        rows = _stacked(list(rows))
    if rows.dtype.kind in "USO":
        raise DataError(WHERE, "x holds texts", "Turn them into numbers or token ids first")
    if rows.dtype.kind in "iu" and rows.ndim > 2 and rows.dtype != np.uint8:
        pixels = rows.size > 0 and 0 <= rows.min() <= rows.max() <= 255
        return rows.astype(np.uint8 if pixels else np.float32)
    return rows


def _numbers_of(frame: Any) -> NDArray[Any]:
    """A data frame as a table of numbers; its whole numbers are numbers, not words of a text."""
    odd = [str(name) for name in frame.columns if np.asarray(frame[name]).dtype.kind not in "fiub"]
    if odd:
        raise DataError(WHERE, f"{_listed(odd)} hold no numbers", "Encode or drop those columns")
    return np.asarray(frame.to_numpy(), np.float32)


def _labels(y: Any) -> NDArray[Any]:
    """One label per example: also a column of a table, also one-hot."""
    labels = np.asarray(_plain(y))
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2 and np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == 1).all():
        labels = labels.argmax(axis=1)
    if labels.ndim != 1:
        what = f"y has shape {labels.shape}"
        raise DataError(WHERE, what, "Give one label per example")
    if labels.dtype.kind == "f" and np.isfinite(labels).all() and (labels % 1).any():
        raise DataError(WHERE, "y holds fractions", "Give classes: this is no regression")
    if labels.dtype.kind == "f" and np.isfinite(labels).all():
        return labels.astype(np.int64)
    if labels.dtype.kind == "O":
        kinds = {type(label) for label in labels}
        return labels.astype(np.str_) if kinds == {str} else np.array(labels.tolist())
    return labels


def _plain(value: Any) -> Any:
    """Tensors that numpy cannot read as they are, and sparse matrices, as something it can."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        return value.float() if "bfloat16" in str(value.dtype) else value
    return value.toarray() if hasattr(value, "toarray") else value


# ---------------------------------------------------------------- known by what they can do


def _is_frame(given: Any) -> bool:
    return hasattr(given, "columns") and hasattr(given, "to_numpy")


def _is_hub(given: Any) -> bool:
    return hasattr(given, "column_names") and hasattr(given, "features")


def _is_loader(given: Any) -> bool:
    return hasattr(given, "dataset") and hasattr(given, "batch_size")


def _length(part: Any) -> int | None:
    """How many examples this may hold; None for a number or a text."""
    try:
        return None if isinstance(part, str | bytes | Mapping) else len(part)
    except TypeError:
        return None


def _spelled(given: Any) -> str:
    if isinstance(given, list | tuple):
        return f"{len(given)} things: " + ", ".join(type(part).__name__ for part in given[:5])
    return f"of type {type(given).__name__}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{printable(name)}'" for name in names[:5])
    return shown + (" ..." if len(names) > 5 else "")
