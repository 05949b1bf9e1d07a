"""Digits: 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn: no download."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..arrays import from_arrays
from ..dataset import Dataset
from .source import Info, Source

FILE = "datasets/data/digits.csv.gz"
INFO = Info(
    title="Handwritten digits, 8 x 8 grey",
    examples=1797,
    test_examples=0,
    classes=10,
    origin="inside scikit-learn",
    license="CC BY 4.0 (UCI Machine Learning Repository)",
    size_mb=0.1,
    default_model="tiny_mlp",
)


def read_embedded() -> Dataset:
    """The digits.

    Pixels run from 0 to 16, and mean and std are theirs in units of 255, like for any uint8 image.
    """
    table = _table()
    return from_arrays(
        table[:, :64].reshape(-1, 8, 8).astype(np.uint8),
        table[:, 64].astype(np.int64),
        name="digits",
        default_model=INFO.default_model,
        license=INFO.license,
        source="scikit-learn load_digits",
    )


def _table() -> NDArray[np.float64]:
    """(1797, 65) pixels and label.

    Read from scikit-learn's folder without importing it: on a fleet every message to a client
    starts a new Python, and the import was 0.6 s of CPU time in each.
    """
    package = find_spec("sklearn")
    places = (package.submodule_search_locations or []) if package else []
    path = next((path for place in places if (path := Path(place) / FILE).is_file()), None)
    if path is not None:
        with gzip.open(path, "rt") as file:
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits  # a version that keeps it elsewhere knows where

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target])


def _read(folder: Path) -> Dataset:
    return read_embedded()


SOURCE = Source(info=INFO, find=lambda folder: [], read=_read, embedded=read_embedded)
