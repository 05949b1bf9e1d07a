"""A SuperLink whose Control and Runtime interfaces answer only to processes of its own user.

``python -m fedskew.deploy.guarded_superlink`` takes the arguments of ``flower-superlink`` and is
one, with a guard in front of its application. Flower's community edition has no authentication of
who submits a run (``FLWR_OIDC_ENABLED=1`` ends with "unavailable in this Flower distribution"), so
on loopback every user of the machine could. The guard asks the kernel whose socket is at the other
end. Fleet calls need no guard: Flower checks their signatures.

How it gets there is undocumented (:mod:`fedskew.runtime.flower.undocumented`), so ``fedskew flower
up`` looks whether the guard is there (:data:`MARK`), and starts nothing without it.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from fedskew.runtime.flower.undocumented import run_superlink

MARK = "/fedskew/guard"
SOCKETS = Path("/proc/net/tcp")
CAN_GUARD = SOCKETS.is_file()  # Linux; elsewhere the kernel does not tell whose socket it is
OPEN = ("/v1/fleet/",)
ESTABLISHED = "01"

Scope = Mapping[str, Any]
Application = Callable[[Any, Any, Any], Awaitable[None]]


def guarded(application: Application, allowed: frozenset[int]) -> Application:
    """The application, for these users only; everybody else reaches what SuperNodes need."""

    async def guard(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not is_open(scope["path"]):
            if owner_of(scope.get("client"), scope.get("server")) not in allowed:
                return await _answer(send, 403, b"only the user who runs this SuperLink may ask")
            if scope["path"] == MARK:
                return await _answer(send, 200, b"guarded")
        await application(scope, receive, send)

    return guard


def is_open(path: str) -> bool:
    """Whether Flower itself checks who asks.

    >>> is_open("/v1/fleet/get-fab"), is_open("/v1/control/start-run"), is_open("/docs")
    (True, False, False)
    """
    return path.startswith(OPEN)


def owner_of(client: tuple[str, int] | None, server: tuple[str, int] | None) -> int | None:
    """The user whose socket is the client's end of a connection within this machine; None if
    nobody's is.

    Only an established connection counts: the remains of a closed one belong, to the kernel, to
    user 0.
    """
    if client is None or server is None:
        return None
    try:
        rows = SOCKETS.read_text().splitlines()[1:]
        wanted = [_as_kernel(*client), _as_kernel(*server), ESTABLISHED]
    except (OSError, ValueError):
        return None
    for row in rows:
        fields = row.split()
        if fields[1:4] == wanted and fields[9] != "0":  # the last is its inode
            return int(fields[7])
    return None


def _as_kernel(host: str, port: int) -> str:
    """An address as /proc/net/tcp spells it.

    >>> _as_kernel("127.0.0.1", 9092)
    '0100007F:2384'
    """
    number = int.from_bytes(socket.inet_aton(host), sys.byteorder)
    return f"{number:08X}:{port:04X}"


async def _answer(send: Any, status: int, text: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def main() -> None:
    """``flower-superlink`` with the guard."""
    allowed = frozenset({0, os.geteuid()})
    run_superlink(lambda application: guarded(application, allowed))


if __name__ == "__main__":
    main()
