"""CIFAR-100: 60,000 colour images of 32 x 32 pixels in a hundred classes (Krizhevsky 2009).

Its published Python files, which must have their published MD5. What the Hugging Face hub delivers
has no published checksum: there the number of images of each class is checked.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ..arrays import from_arrays
from ..dataset import Dataset
from ..mirrors import Mirrors, RemoteFile
from .cifar10 import ADDRESSES, channels_last, unpickled
from .source import Arrays, Hub, Info, Source

FILES = ("train", "test", "meta")
MD5 = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
MEAN = (0.5071, 0.4866, 0.4409)  # of the training pixels / 255, per channel
STD = (0.2673, 0.2564, 0.2762)
PER_CLASS = (500, 100)  # training and test images
INFO = Info(
    title="CIFAR-100 photographs, 32 x 32 colour, a hundred classes",
    examples=50_000,
    test_examples=10_000,
    classes=100,
    origin="cifar-100-python.tar.gz of the University of Toronto",
    license="none stated",
    size_mb=169.0,
    default_model="cnn_lenet",
)


def find(folder: Path) -> list[Path]:
    """The three files below ``folder``."""
    for place in (folder / "cifar-100-python", folder / "cifar100", folder):
        files = [place / name for name in FILES]
        if all(file.is_file() for file in files):
            return files
    return []


def read(folder: Path) -> Dataset:
    """CIFAR-100 from its files below ``folder``, checked."""
    files = find(folder)
    for file in files:
        md5 = hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()
        if md5 != MD5[file.name]:
            what = f"{file.name} has MD5 {md5}, not {MD5[file.name]}"
            raise DataError("data cifar100", what, "It is damaged: fetch it again")
    train, test, meta = (unpickled(file) for file in files)
    names = tuple(str(name, "utf-8") for name in meta[b"fine_label_names"])
    (x, y), (x_test, y_test) = (_arrays(batch) for batch in (train, test))
    return build(Arrays(x, y, x_test, y_test), names)


def _arrays(batch: Any) -> tuple[Any, Any]:
    return channels_last(np.asarray(batch[b"data"], np.uint8)), np.asarray(batch[b"fine_labels"])


def build(arrays: Arrays, names: tuple[str, ...] = ()) -> Dataset:
    """A dataset, if every class has as many images as were published."""
    y, y_test = np.asarray(arrays.y, np.int64), np.asarray(arrays.y_test, np.int64)
    for labels, each in zip((y, y_test), PER_CLASS, strict=True):
        if np.bincount(labels, minlength=100).tolist() != [each] * 100:
            what = f"not every class has {each} images"
            raise DataError("data cifar100", what, "It is not what was published: fetch it again")
    return from_arrays(
        arrays.x,
        y,
        arrays.x_test,
        y_test,
        name="cifar100",
        num_classes=100,
        class_names=names or None,
        mean=MEAN,
        std=STD,
        default_model=INFO.default_model,
        license=INFO.license,
        source=INFO.origin,
    )


SOURCE = Source(
    info=INFO,
    find=find,
    read=read,
    mirrors=Mirrors(
        ADDRESSES,
        (RemoteFile("cifar-100-python.tar.gz", 169_001_437, "eb9058c3a382ffc7106e4002c42a8d85"),),
        "cifar-100-python",
    ),
    hub=Hub("uoft-cs/cifar100", "img", "fine_label"),
    build=build,
)
