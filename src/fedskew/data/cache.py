"""The cache folder: each dataset is a folder of plain ``.npy`` files that processes map at once.

A dataset is written into a hidden temporary folder beside its place and moved there by one rename,
so a killed download or a full disk never leaves half a dataset. Training and test rows share one
file (training first): pooling them needs no copy.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

from ..errors import DataError, foreign_file
from .checksums import damaged_files, sum_of, sum_of_meta
from .dataset import Dataset

FORMAT = 1
STALE_SECONDS = 24 * 3600.0  # temporary folders older than this were left by a killed process
_PLAIN = ("num_classes", "default_model", "license", "source", "scale", "vocab_size", "words")


def cache_folder() -> Path:
    """Where datasets are kept: ``FEDSKEW_DATA``, or the user's cache folder."""
    named = os.environ.get("FEDSKEW_DATA")
    return Path(named) if named else Path(platformdirs.user_cache_dir("fedskew", appauthor=False))


def is_cached(name: str) -> bool:
    """Is this dataset in the cache folder?"""
    return (cache_folder() / name / "meta.json").is_file()


def is_stale(name: str) -> bool:
    """Texts cached before their vocabulary was left to the training clients: to be read again."""
    meta = read_meta(name)
    return bool(meta.get("vocab_size")) and not meta.get("words")


@contextmanager
def workspace(name: str) -> Iterator[Path]:
    """A temporary folder on the same disk as the cache, gone at the end whatever happens."""
    root = cache_folder()
    try:
        root.mkdir(parents=True, exist_ok=True)
        _sweep(root)
        folder = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=root))
    except OSError as error:
        raise DataError(
            f"data {name}",
            f"cannot write to {root} ({error})",
            "Set FEDSKEW_DATA to a folder you can write to",
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def store(dataset: Dataset, space: Path, origin: dict[str, Any]) -> Path:
    """Write ``dataset`` below ``space`` (a :func:`workspace`), then move it in in one step."""
    new = space / "dataset"
    final = cache_folder() / dataset.name
    new.mkdir()
    arrays = _arrays(dataset)
    for file, array in arrays.items():
        np.save(new / file, array, allow_pickle=False)
    meta = {
        "format": FORMAT,
        "name": dataset.name,
        "num_train": len(dataset.y),
        "class_names": dataset.class_names,
        "columns": list(dataset.columns),
        "origin": origin,
        "bytes": {file: (new / file).stat().st_size for file in arrays},
        "sha256": {file: sum_of(new / file) for file in arrays},
        **{key: getattr(dataset, key) for key in _PLAIN},
    }
    meta = json.loads(json.dumps(meta))  # as it will be read
    meta["check"] = sum_of_meta(meta)
    (new / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    _move_into_place(new, final, space)
    return final


def damage(name: str) -> str:
    """What is wrong with the copy of a dataset in the cache, "" if nothing is."""
    folder = cache_folder() / name
    try:
        meta = read_meta(name)
        if meta.get("format") != FORMAT:
            return f"{folder} is of an unknown format"
        files = damaged_files(folder, meta)
    except (DataError, AttributeError, KeyError, TypeError, ValueError, OSError) as error:
        return error.what if isinstance(error, DataError) else f"{folder} has no usable meta.json"
    return f"{folder} is damaged ({', '.join(files)})" if files else ""


def open_cached(name: str) -> Dataset:
    """Map a cached dataset. Opening costs no more than reading its headers, once its files were
    found to be what was written.
    """
    if fault := damage(name):
        raise DataError(f"data {name}", fault, f"Remove it; fedskew data get {name} fetches it")
    with foreign_file(DataError, f"data {name}", f"Remove {cache_folder() / name}, fetch it again"):
        return _mapped(name)


def _mapped(name: str) -> Dataset:
    folder, meta = cache_folder() / name, read_meta(name)
    x = _map(folder / "x.npy")
    y = _map(folder / "y.npy")
    n = meta["num_train"]
    scaled = "mean.npy" in meta["bytes"]
    return Dataset(
        name=name,
        x=x[:n],
        y=y[:n],
        x_test=x[n:],
        y_test=y[n:],
        class_names=tuple(meta["class_names"]),
        mean=np.load(folder / "mean.npy") if scaled else None,
        std=np.load(folder / "std.npy") if scaled else None,
        columns={key: _map(folder / f"column_{i}.npy") for i, key in enumerate(meta["columns"])},
        # "words" came later than the first caches
        **{key: meta[key] for key in _PLAIN if key in meta},
    )


def read_meta(name: str) -> dict[str, Any]:
    """What ``meta.json`` says about a cached dataset."""
    path = cache_folder() / name / "meta.json"
    try:
        meta: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        remedy = f"Remove {path.parent}, then: fedskew data get {name}"
        raise DataError(f"data {name}", f"cannot read {path} ({error})", remedy) from error
    return meta


def _arrays(dataset: Dataset) -> dict[str, NDArray[Any]]:
    arrays = {
        "x.npy": np.concatenate([dataset.x, dataset.x_test]),
        "y.npy": np.concatenate([dataset.y, dataset.y_test]),
    }
    if dataset.mean is not None and dataset.std is not None:
        arrays |= {"mean.npy": dataset.mean, "std.npy": dataset.std}
    return arrays | {f"column_{i}.npy": column for i, column in enumerate(dataset.columns.values())}


def _map(path: Path) -> NDArray[Any]:
    array: NDArray[Any] = np.load(
        path, allow_pickle=False, mmap_mode="r" if path.stat().st_size > 4096 else None
    )
    return array


def _move_into_place(new: Path, final: Path, space: Path) -> None:
    """Two renames: processes that mapped the old dataset keep it, nobody ever sees half of one."""
    old = space / "old"
    if final.exists():
        final.rename(old)
    try:
        new.rename(final)
    except OSError:
        if (final / "meta.json").is_file():
            return  # another process was quicker, with the same data
        if old.exists():
            old.rename(final)
        raise


def _sweep(root: Path) -> None:
    for left in root.glob(".*-*"):
        if left.is_dir() and time.time() - left.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
