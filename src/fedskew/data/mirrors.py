"""Files from public addresses, over plain HTTPS: for people without a package client.

A broken download goes on where it stopped, also tomorrow; a file that is not what was published is
thrown away, whoever served it. ``FEDSKEW_MIRROR`` names an address of your own that is asked first
(``<address>/mnist/<file>``), or is ``none``: then no address is asked at all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import DataError
from .cache import cache_folder
from .packages import Progress

VARIABLE = "FEDSKEW_MIRROR"
TRIES = 3  # of one address whose connection breaks
STALL_SECONDS = 30.0
PIECE = 1 << 16


@dataclass(frozen=True)
class RemoteFile:
    """A published file; ``md5`` "": what is in it is checked where it is read."""

    name: str
    bytes: int
    md5: str = ""


@dataclass(frozen=True)
class Mirrors:
    """Addresses that each have all the files."""

    addresses: tuple[str, ...]
    files: tuple[RemoteFile, ...]
    inside: str = ""  # the folder wanted from a single archive

    @property
    def bytes(self) -> int:
        """How much there is to bring."""
        return sum(file.bytes for file in self.files)


def downloads_of(name: str) -> Path:
    """Where the files of a dataset wait until all of them are there; swept after a day."""
    return cache_folder() / f".downloads-{name}"


def bring(name: str, mirrors: Mirrors, progress: Progress | None = None) -> Path:
    """Bring every file of a dataset; returns the folder they are in."""
    own = os.environ.get(VARIABLE, "").rstrip("/")
    if own == "none":
        raise DataError("mirrors", f"{VARIABLE} is none, so none is asked")
    addresses = [*([f"{own}/{name}"] if own else []), *mirrors.addresses]
    folder = downloads_of(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "Set FEDSKEW_DATA to a folder you can write to"
        raise DataError(f"data {name}", f"cannot write to {folder} ({error})", remedy) from error
    for file in mirrors.files:
        if not _is_right(folder / file.name, file):
            _from_any(addresses, file, folder, progress)
    return folder


def forget(name: str) -> None:
    """Remove what was downloaded: the dataset is in the cache now."""
    shutil.rmtree(downloads_of(name), ignore_errors=True)


def _from_any(
    addresses: list[str], file: RemoteFile, folder: Path, progress: Progress | None
) -> None:
    reasons = []
    for address in addresses:
        try:
            _from_one(f"{address}/{file.name}", file, folder / file.name, progress)
            return
        except DataError as error:
            reasons.append(str(error))
    raise DataError(f"file {file.name}", "no mirror delivered it: " + " ".join(reasons))


def _from_one(url: str, file: RemoteFile, path: Path, progress: Progress | None) -> None:
    import http.client  # here, or every list of datasets pays for it
    import urllib.error

    host = urlsplit(url).netloc
    part = path.with_name(path.name + ".part")
    for left in reversed(range(TRIES)):
        try:
            _receive(url, file, part, progress)
            break
        except urllib.error.HTTPError as error:
            raise DataError(f"mirror {host}", f"answers {error.code}") from None
        except (OSError, http.client.HTTPException) as error:  # URLError, timeouts: OSErrors
            if not left:
                said = getattr(error, "reason", error)
                raise DataError(f"mirror {host}", f"cannot be read ({said})") from None
    if not _is_right(part, file):
        part.unlink()
        raise DataError(f"mirror {host}", f"sent another {file.name} than was published")
    part.replace(path)


def _receive(url: str, file: RemoteFile, part: Path, progress: Progress | None) -> None:
    """Append what is missing; an address that cannot go on in the middle begins anew."""
    import urllib.request

    done = part.stat().st_size if part.exists() else 0
    if file.bytes and done >= file.bytes:
        return
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    with urllib.request.urlopen(request, timeout=STALL_SECONDS) as answer:
        done = done if answer.status == 206 else 0
        with part.open("ab" if done else "wb") as output:
            while piece := answer.read(PIECE):
                done += len(piece)
                if file.bytes and done > file.bytes:
                    break
                output.write(piece)
                if progress:
                    progress(done, file.bytes or None, f"{urlsplit(url).netloc} {file.name}")
    if done < file.bytes:
        raise ConnectionError(f"it ended after {done:,} of {file.bytes:,} bytes")


def _is_right(path: Path, file: RemoteFile) -> bool:
    if not path.is_file() or (file.bytes and path.stat().st_size != file.bytes):
        return False
    if not file.md5:
        return path.stat().st_size > 0
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False))
    return digest.hexdigest() == file.md5
