"""Writing and reading files so that a full disk or a kill never damages what was there before."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedskew.errors import RunFolderError


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system says into one line a person can act on."""
    try:
        yield
    except OSError as error:
        remedy = (
            "Free some space, then use --resume"
            if error.errno == errno.ENOSPC
            else "Choose another --out"
        )
        raise RunFolderError(str(path), error.strerror or str(error), remedy) from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that at every moment either the old or the new content is there, whole."""
    temporary = path.with_name(f".{path.name}.tmp")
    with disk_errors(path):
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """JSON with two-space indent; nan becomes null."""
    write_atomically(path, (json.dumps(no_nan(value), indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a run folder."""
    try:
        content = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(
            str(path), f"cannot be read ({error})", "Remove the folder and run again"
        ) from None
    if not isinstance(content, dict):
        raise RunFolderError(str(path), "is not a JSON object", "Remove the folder and run again")
    return content


def no_nan(value: Any) -> Any:
    """A value that is legal JSON: what is not finite becomes None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): no_nan(v) for k, v in value.items()}
    return [no_nan(v) for v in value] if isinstance(value, list | tuple) else value


def no_none(value: Any) -> Any:
    """TOML has no null: an option that is None is left out, and is None again when read."""
    if isinstance(value, Mapping):
        return {k: no_none(v) for k, v in value.items() if v is not None}
    return [no_none(v) for v in value] if isinstance(value, list | tuple) else value
