"""Digits: 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn, for a first run without any download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..arrays import from_arrays
from ..dataset import Dataset
from .source import Info, Source

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
    """The digits. Pixels run from 0 to 16, and mean and std are theirs in units of 255, like for any uint8 image."""
    from sklearn.datasets import load_digits  # here, because importing it takes most of a second

    bunch = load_digits()
    return from_arrays(
        bunch.images.astype(np.uint8),
        bunch.target.astype(np.int64),
        name="digits",
        default_model=INFO.default_model,
        license=INFO.license,
        source="scikit-learn load_digits",
    )


def _read(folder: Path) -> Dataset:
    return read_embedded()


SOURCE = Source(info=INFO, find=lambda folder: [], read=_read, embedded=read_embedded)
