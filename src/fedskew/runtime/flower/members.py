"""Which client a node is: bound to its key by whoever admits it, never by what it says itself.

Flower gives every registered key a node number of its own and lets nobody else use it. The file
``members.json`` of a fleet with TLS says which client each of those numbers was admitted as; the
ServerApp finds it by an environment variable that the SuperLink was started with.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedskew.errors import RunError

VARIABLE = "FEDSKEW_MEMBERS"


@dataclass(frozen=True)
class Member:
    """One admitted key."""

    client: int
    name: str
    key: str  # fingerprint of its public half
    node: int  # Flower's number for it


def read_members(path: Path) -> list[Member]:
    """Everybody who was admitted; nobody if the file is not there yet."""
    try:
        raw = json.loads(path.read_text(encoding="utf8"))
        return [
            Member(int(row["client"]), str(row["name"]), str(row["key"]), int(row["node"]))
            for row in raw["members"]
        ]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunError(
            str(path), f"cannot be read ({error})", "Bring it back from a backup"
        ) from None


def read_revoked(path: Path) -> list[dict[str, Any]]:
    """Everybody who was admitted once and is not any more, with the time it ended."""
    if not path.is_file():
        return []
    read_members(path)  # an error of ours if it cannot be read
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf8")).get("revoked", [])
    return rows


def admitted() -> Mapping[int, int] | None:
    """node -> client, of everybody who was admitted; None where nodes need not be.

    >>> admitted() is None
    True
    """
    path = os.environ.get(VARIABLE, "")
    return {one.node: one.client for one in read_members(Path(path))} if path else None


def wrong_number(node: int, client: int, known: Mapping[int, int] | None) -> str:
    """What is wrong with a node's saying that it is this client, or "".

    >>> wrong_number(11, 3, {11: 0})
    'says it is client 3, but its key was admitted as client 0'
    """
    if known is None or known.get(node) == client:
        return ""
    if node not in known:
        return "was registered, but not by fedskew flower admit"
    return f"says it is client {client}, but its key was admitted as client {known[node]}"
