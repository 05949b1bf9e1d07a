"""Is a cached dataset what was put there? SHA-256 of every file, looked at again when it changed.

The sums stand in ``meta.json``, which has one of its own. Reading them all costs a second per
gigabyte, so a file that was found right is not read again as long as its time of change, size and
inode stay the same (``verified.json``). Against somebody who can write to the cache folder this
does not help; against damaged disks, half copies and tools that write in place it does.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

VERIFIED = "verified.json"
Stamps = dict[str, list[int]]


def sum_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sum_of_meta(meta: Mapping[str, Any]) -> str:
    """SHA-256 of what is said about a dataset, but for this sum itself."""
    content = {key: value for key, value in meta.items() if key != "check"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def damaged_files(folder: Path, meta: Mapping[str, Any]) -> list[str]:
    """Files of a cached dataset that are not as they were written; of copies made before there
    were sums only sizes are known.
    """
    sums, known = meta.get("sha256", {}), _read(folder)
    found: Stamps = {}
    damaged = ["meta.json"] if "check" in meta and meta["check"] != sum_of_meta(meta) else []
    for file, size in meta["bytes"].items():
        stamp = _stamp(folder / file)
        if stamp is None or stamp[1] != size:
            damaged.append(file)
        elif known.get(file) == stamp or file not in sums or sum_of(folder / file) == sums[file]:
            found[file] = stamp
        else:
            damaged.append(file)
    if sums and found != known:
        _write(folder, found)
    return damaged


def _stamp(path: Path) -> list[int] | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return [facts.st_mtime_ns, facts.st_size, facts.st_ino]


def _read(folder: Path) -> Stamps:
    try:
        content = json.loads((folder / VERIFIED).read_text(encoding="utf8"))
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError, RecursionError):
        return {}


def _write(folder: Path, stamps: Stamps) -> None:
    """Best effort: a cache that cannot be written to is read through every time."""
    temporary = folder / f".{VERIFIED}-{os.getpid()}"
    with suppress(OSError):
        temporary.write_text(json.dumps(stamps), encoding="utf8")
        temporary.replace(folder / VERIFIED)
