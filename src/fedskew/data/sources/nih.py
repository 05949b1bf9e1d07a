"""NIH ChestX-ray14: the labels of all 112,120 X-rays, and a sample of small images in a folder.

Wang et al., CVPR 2017.

Only X-rays with exactly one of the 14 findings are kept (docs/methods.md 11.4: an image then has
one label), and ``patient`` names natural clients. Classes that do not occur are dropped. Cite Wang
et al. and acknowledge the NIH Clinical Center.
"""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ..arrays import from_arrays
from ..dataset import Dataset
from ..mirrors import Mirrors, RemoteFile
from ..packages import Package
from .source import Info, Source, find_one, read_npz, read_packed

TABLE = "Data_Entry_2017_v2020.csv"
TABLE_SHA256 = "dc1d2df67fdc1c5a7601d48699cda2b13dc2c4841488b4183dcf04884dbaca11"  # unpacked
LARGEST = 100_000_000  # bytes; the table has 8 million
FINDINGS = (
    *("Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia"),
    *(
        "Pneumothorax",
        "Consolidation",
        "Edema",
        "Emphysema",
        "Fibrosis",
        "Pleural_Thickening",
        "Hernia",
    ),
)
LICENSE = "free to use with attribution (NIH Clinical Center)"
LABELS_INFO = Info(
    title="NIH ChestX-ray14 labels without images, one finding each",
    examples=30_963,
    test_examples=0,
    classes=14,
    origin="PyPI package torchxrayvision 1.5.7, one file of it",
    license=LICENSE,
    size_mb=29.0,
    default_model="",
)
IMAGES_INFO = Info(
    title="NIH ChestX-ray14 sample, 64 x 64 grey, one finding each",
    examples=1_421,
    test_examples=0,
    classes=14,
    origin="nih_cxr14*.npz in a folder you name",
    license=LICENSE,
    size_mb=17.9,
    default_model="cnn_small",
    needs_folder=True,
)


def find_labels(folder: Path) -> list[Path]:
    """The label table, raw or .gz."""
    return [path for path in (folder / TABLE, folder / f"{TABLE}.gz") if path.is_file()][:1]


def read_labels(folder: Path) -> Dataset:
    """Labels and patients of the X-rays with one finding; ``x`` has no columns."""
    text = _unpack(find_labels(folder)[0])
    rows = csv.reader(text.decode("utf-8").splitlines())
    next(rows)
    kept = [(row[1], int(row[3])) for row in rows if row[1] in FINDINGS]
    codes = np.array([FINDINGS.index(finding) for finding, _ in kept], np.int64)
    return from_arrays(
        np.zeros((len(kept), 0), np.float32),
        codes,
        name="nih_labels",
        num_classes=len(FINDINGS),
        class_names=FINDINGS,
        columns={"patient": np.array([patient for _, patient in kept], np.int64)},
        license=LICENSE,
        source=LABELS_INFO.origin,
    )


def read_images(folder: Path) -> Dataset:
    """The images with exactly one finding."""
    path = find_one(folder, "nih_cxr14*.npz")[0]
    images, hot, names, patients = read_npz(path, ("images", "labels", "class_names", "patient_id"))
    one = hot.sum(axis=1) == 1
    labels, present = drop_absent(hot[one].argmax(axis=1), len(names))
    return from_arrays(
        images[one],
        labels,
        name="nih_images",
        num_classes=len(present),
        class_names=tuple(str(names[c]) for c in present),
        columns={"patient": patients[one]},
        default_model=IMAGES_INFO.default_model,
        license=LICENSE,
        source=path.name,
    )


def drop_absent(
    labels: NDArray[np.int64], num_classes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Labels renumbered over the classes that occur, and which those are.

    >>> [a.tolist() for a in drop_absent(np.array([4, 1, 4]), 6)]
    [[1, 0, 1], [1, 4]]
    """
    present = np.flatnonzero(np.bincount(labels, minlength=num_classes))
    return np.searchsorted(present, labels), present


def _unpack(path: Path) -> bytes:
    text = read_packed(path, LARGEST)
    sha256 = hashlib.sha256(text).hexdigest()
    if sha256 != TABLE_SHA256:
        raise DataError(
            "data nih_labels",
            f"{TABLE} has SHA-256 {sha256}, not {TABLE_SHA256}",
            "It is damaged: fetch it again",
        )
    return text


LABELS = Source(
    info=LABELS_INFO,
    find=find_labels,
    read=read_labels,
    package=Package(
        "pip", "torchxrayvision==1.5.7", 29_002_185, f"torchxrayvision/data/{TABLE}.gz"
    ),
    mirrors=Mirrors(
        ("https://raw.githubusercontent.com/mlmed/torchxrayvision/master/torchxrayvision/data",),
        (RemoteFile(f"{TABLE}.gz", 0),),  # the table itself is checked
    ),
)
IMAGES = Source(
    info=IMAGES_INFO, find=lambda folder: find_one(folder, "nih_cxr14*.npz"), read=read_images
)
