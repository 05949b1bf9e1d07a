"""Writing and reading files so that a full disk or a kill never damages what was there before."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedskew.errors import RunFolderError
from fedskew.records.sums import NOT_WHOLE, Damaged, seal, seal_of

AGAIN = "Remove the folder and run again"
REFINISH = "Remove it and result.json, then use --resume: only the end is done again"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LAST = "sum"  # the entry of a JSON object that has the checksum of the others
# entries of objects that have one: if it is not there, the word itself is damaged
_SEALED = frozenset({_LAST, "checksums", "sums", "run"})


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system says into one line a person can act on."""
    try:
        yield
    except OSError as error:
        remedy = (
            "Free some space, then use --resume" if error.errno in _FULL else "Choose another --out"
        )
        raise RunFolderError(str(path), error.strerror or str(error), remedy) from None


def write_atomically(path: Path, content: bytes, *, previous: Path | None = None) -> None:
    """Write a file so that at every moment either the old or the new content is there, whole;
    with ``previous`` the old content stays, under that name.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with disk_errors(path):
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if previous is not None and path.is_file():
                _keep(path, previous)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def _keep(path: Path, previous: Path) -> None:
    """Give a file a second name; on a disk that has no second names it loses the first."""
    spare = previous.with_name(f".{previous.name}.tmp")
    spare.unlink(missing_ok=True)
    try:
        os.link(path, spare)
    except OSError:
        os.replace(path, spare)
    os.replace(spare, previous)


def write_json(path: Path, value: Any) -> None:
    """JSON with two-space indent; nan becomes null."""
    write_atomically(path, json_bytes(value))


def write_sealed(path: Path, value: Mapping[str, Any]) -> str:
    """A JSON object that carries its checksum, which is returned; :func:`read_json` checks it."""
    content = seal(json_bytes(value))
    write_atomically(path, content)
    return seal_of(content) or ""


def json_bytes(value: Any) -> bytes:
    """JSON with two-space indent; nan becomes null."""
    return (json.dumps(no_nan(value), indent=2) + "\n").encode()


def read_json(
    path: Path, *, expected: str | None = None, mark: str = "", remedy: str = AGAIN
) -> dict[str, Any]:
    """A JSON object from a run folder, checked if it carries a checksum, which is left out;
    ``expected``: the checksum it must have; ``mark``: the run it must belong to, if it says so.
    """
    try:
        raw = path.read_bytes()
        found = seal_of(raw)
        content = json.loads(raw)
    except Damaged as error:
        raise RunFolderError(str(path), str(error), remedy) from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(str(path), f"cannot be read ({error})", remedy) from None
    if not isinstance(content, dict):
        raise RunFolderError(str(path), "is not a JSON object", remedy)
    if found is None and not _SEALED.isdisjoint(content):
        raise RunFolderError(str(path), NOT_WHOLE, remedy)
    if expected not in (None, found):
        raise RunFolderError(str(path), "is not the file that the run left", remedy)
    if mark and content.get("run") not in (None, "", mark):
        raise RunFolderError(str(path), "belongs to another run", remedy)
    content.pop(_LAST, None)
    return content


def no_nan(value: Any) -> Any:
    """A value that is legal JSON: what is not finite becomes None, a number of numpy a number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(k): no_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [no_nan(v) for v in value]
    return no_nan(value.item()) if isinstance(value, np.generic) else value


def no_none(value: Any) -> Any:
    """TOML has no null: an option that is None is left out, and is None again when read."""
    if isinstance(value, Mapping):
        return {k: no_none(v) for k, v in value.items() if v is not None}
    return [no_none(v) for v in value] if isinstance(value, list | tuple) else value


def lock_alone(file: IO[str]) -> None:
    """Hold a file alone until it is closed; OSError if another process does. Where the system
    offers no locks, nobody is kept out.
    """
    with suppress(ImportError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    with suppress(ImportError):
        import msvcrt  # Windows

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
