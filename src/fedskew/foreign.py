"""Text from elsewhere: what may be printed, what may name a file, TOML that may be hostile."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LONGEST_FILE = 10_000_000  # bytes of a TOML file; the longest of ours has 3,000
DEEPEST = 20  # tables and lists inside each other
LARGEST = 2**63  # as TOML itself has it
LONGEST_NAME = 200


class ForeignName(str):
    """What a run folder, a message or a run configuration calls a function: code of ours may go by
    that name, other code is never imported for it (:func:`fedskew.recipe.find`).
    """

    __slots__ = ()


def printable(name: str, width: int = 40) -> str:
    """A name that cannot move the cursor, change colours or fill the screen.

    >>> printable("a\\x1b[31mb\\n"), printable("x" * 50, 10)
    ('a?[31mb?', 'xxxxxxxxx…')
    """
    text = "".join(c if c.isprintable() else "?" for c in name)
    return text if len(text) <= width else text[: width - 1] + "…"


def file_name(name: str) -> str:
    """A name as one part of a path: it leads nowhere else, and is never hidden or empty.

    >>> file_name("../my rule"), file_name("..."), len(file_name("x" * 999))
    ('_my_rule', '_', 80)
    """
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name).strip(".")[:80] or "_"


def fault_of_name(name: Any) -> str:
    """What is wrong with a recipe's name, "" if nothing is.

    >>> fault_of_name("fedavg, 10 % <b>"), fault_of_name("a\\nb")
    ('', "holds characters that cannot be printed: 'a?b'")
    """
    if not isinstance(name, str):
        return f"is {printable(repr(name))}, not a text"
    if not name.isprintable():
        return f"holds characters that cannot be printed: '{printable(name)}'"
    if not name.strip() or len(name) > LONGEST_NAME:
        return f"has {len(name.strip())} characters, not 1 to {LONGEST_NAME}"
    return ""


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file, or an OSError or ValueError: nothing in it can end Python otherwise."""
    if path.stat().st_size > LONGEST_FILE:
        raise ValueError(f"it has more than {LONGEST_FILE:,} bytes")
    return toml_of(path.read_text(encoding="utf8"))


def toml_of(text: str) -> dict[str, Any]:
    """TOML as a dict, or a ValueError.

    >>> toml_of("lr = 0.1")
    {'lr': 0.1}
    >>> toml_of("lr = " + "[" * 9999)
    Traceback (most recent call last):
    ValueError: lists or tables are nested too deeply
    """
    try:
        raw = tomllib.loads(text)
        _check(raw, DEEPEST)
    except RecursionError:
        raise ValueError("lists or tables are nested too deeply") from None
    return raw


def _check(value: Any, deepest: int) -> None:
    if isinstance(value, int) and not -LARGEST <= value < LARGEST:
        raise ValueError("an integer has more than 64 bits")
    if isinstance(value, (Mapping, list)):
        if not deepest:
            raise RecursionError
        for inner in value.values() if isinstance(value, Mapping) else value:
            _check(inner, deepest - 1)
