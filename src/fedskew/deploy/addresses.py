"""Where processes of a fleet can listen, and by which names they are reached."""

from __future__ import annotations

import contextlib
import random
import socket

from fedskew.errors import RunError

LOOPBACK = "127.0.0.1"
EVERYWHERE = ("0.0.0.0", "::")
# below those the kernel gives to outgoing connections: one is still free when a node binds it
PORTS = range(20_000, 32_000)
_given: set[int] = set()  # by this process


def free_port(host: str) -> int:
    """A port nobody listens on, another one each time: who was given one may not listen yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    left = [port for port in PORTS if port not in _given]
    for port in random.SystemRandom().sample(left, min(50, len(left))):
        with contextlib.suppress(OSError), socket.create_server((host, port), family=family):
            _given.add(port)
            return port
    raise RunError(
        f"address {host}",
        "cannot be listened on",
        "Give --host an address of this machine, and --port",
    )


def hosts_of(host: str) -> list[str]:
    """The names a certificate must hold: where the SuperLink listens, and this machine itself."""
    own = (
        [host]
        if host not in EVERYWHERE
        else [socket.gethostname(), socket.getfqdn(), *_addresses()]
    )
    return list(dict.fromkeys([*own, LOOPBACK, "localhost"]))


def _addresses() -> list[str]:
    try:
        return [
            str(entry[4][0])
            for entry in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
        ]
    except OSError:
        return []
