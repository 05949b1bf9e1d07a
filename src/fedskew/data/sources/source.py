"""What fedskew knows about one dataset: facts to show, and the ways to get it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError, foreign_file
from ..dataset import Dataset
from ..mirrors import Mirrors
from ..packages import Package


@dataclass(frozen=True)
class Info:
    """Facts about a dataset that are known before it is here."""

    title: str
    examples: int  # training rows
    test_examples: int  # rows of the official test set, 0 = there is none
    classes: int
    origin: str
    license: str
    size_mb: float  # to download, or the file to bring
    default_model: str
    needs_folder: bool = False  # no package carries it: name a folder that holds its file


@dataclass(frozen=True)
class Arrays:
    """Images and labels as a source delivered them, before anything was checked."""

    x: NDArray[np.uint8]
    y: NDArray[Any]
    x_test: NDArray[np.uint8]
    y_test: NDArray[Any]


@dataclass(frozen=True)
class Hub:
    """A dataset on the Hugging Face hub with image and label columns."""

    repository: str
    image: str
    label: str = "label"


@dataclass(frozen=True)
class Source:
    """How to get one dataset.

    ``find`` lists its files in a folder (empty = not there), ``read`` turns them into a dataset.
    """

    info: Info
    find: Callable[[Path], list[Path]]
    read: Callable[[Path], Dataset]
    package: Package | None = None
    installed: Path | None = None  # where the operating system's package manager would have put it
    mirrors: Mirrors | None = None
    hub: Hub | None = None
    build: Callable[[Arrays], Dataset] | None = None  # from what the hub delivers
    embedded: Callable[[], Dataset] | None = None  # inside a library we need anyway


def read_npz(path: Path, keys: tuple[str, ...]) -> list[NDArray[Any]]:
    """The named arrays of one .npz file."""
    with (
        foreign_file(DataError, f"file {path}", f"It needs the arrays {', '.join(keys)}"),
        # opened here, or a bad file stays open
        path.open("rb") as file,
        np.load(file, allow_pickle=False) as packed,
    ):
        return [packed[key] for key in keys]


def read_packed(path: Path, most: int) -> bytes:
    """The bytes of a file, unpacked if it is gzipped; more than ``most`` are refused, not read."""
    opener = gzip.open if path.suffix == ".gz" else open
    with foreign_file(DataError, f"file {path}", "Fetch it again"), opener(path, "rb") as file:
        content: bytes = file.read(most + 1)
    if len(content) > most:
        raise DataError(f"file {path}", f"holds more than {most:,} bytes", "Fetch it again")
    return content


def find_one(folder: Path, pattern: str) -> list[Path]:
    """The one file of ``folder`` that fits ``pattern``; several are refused rather than guessed."""
    files = sorted(folder.glob(pattern))
    if len(files) > 1:
        names = ", ".join(path.name for path in files)
        raise DataError(
            f"folder {folder}", f"several files fit {pattern}: {names}", "Keep one of them there"
        )
    return files
