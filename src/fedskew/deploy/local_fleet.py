"""A SuperLink and some SuperNodes on this machine: start them, look after them, stop exactly them.

Everything lies in one folder that only its owner can read: ``fleet.json`` (what runs, with process
numbers and times of birth), ``logs/``, ``keys/`` and Flower's own files in ``flwr/``.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from fedskew.deploy.flower_cli import (
    CONNECTION,
    QUIET,
    call,
    check_reachable,
    environment,
    program,
    write_connection,
)
from fedskew.deploy.keys import (
    Certificates,
    make_certificates,
    make_node_key,
    private_folder,
    write_private,
)
from fedskew.deploy.processes import Started, last_lines, reap, start, stop
from fedskew.errors import RunError, RunFolderError

SHEET = "fleet.json"
START_SECONDS = 90.0
LOOPBACK = "127.0.0.1"
EVERYWHERE = ("0.0.0.0", "::")
# below those the kernel gives to outgoing connections: one is still free when a node binds it
PORTS = range(20_000, 32_000)


@dataclass(frozen=True)
class Fleet:
    """What was started, as it stands in ``fleet.json``."""

    home: str
    address: str
    tls: bool
    simulated: int = 0  # virtual nodes on Ray instead of SuperNodes
    # what the SuperLink listens on; the address is where this machine reaches it
    host: str = LOOPBACK
    processes: tuple[Started, ...] = field(default_factory=tuple)

    @property
    def folder(self) -> Path:
        """Where everything of this fleet lies."""
        return Path(self.home)

    @property
    def flower_home(self) -> Path:
        """Flower's configuration for commands against this fleet."""
        return self.folder / "flwr" / "cli"

    @property
    def authority(self) -> Path | None:
        """The certificate to check the SuperLink with."""
        return self.folder / "keys" / "ca.crt" if self.tls else None


# ---------------------------------------------------------------- the sheet


def read_fleet(home: Path) -> Fleet:
    """The fleet of a folder."""
    try:
        raw = json.loads((home / SHEET).read_text())
        return Fleet(**{**raw, "processes": tuple(Started(**p) for p in raw["processes"])})
    except FileNotFoundError:
        raise RunFolderError(
            str(home), "no fleet was started here", "Start one: fedskew flower up"
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunFolderError(
            str(home / SHEET), f"cannot be read ({error})", "Remove it once nothing runs any more"
        ) from None


def _write(fleet: Fleet) -> Fleet:
    write_private(fleet.folder / SHEET, (json.dumps(asdict(fleet), indent=2) + "\n").encode())
    return fleet


# ---------------------------------------------------------------- up


def up(
    home: Path,
    nodes: int,
    *,
    tls: bool = False,
    host: str = LOOPBACK,
    port: int = 0,
    simulation: bool = False,
) -> Fleet:
    """Start a SuperLink and ``nodes`` SuperNodes, clients 0 to nodes - 1. The SuperLink answers
    when this returns.

    With ``simulation`` there are no SuperNodes: Flower's simulation engine (Ray) plays them within
    each run.
    """
    home = private_folder(home.resolve())
    if (home / SHEET).is_file() and any(p.alive for p in read_fleet(home).processes):
        raise RunFolderError(str(home), "a fleet is running here", "Stop it: fedskew flower down")
    for folder in ("logs", "flwr"):
        private_folder(home / folder)
    reached = LOOPBACK if host in EVERYWHERE else host
    fleet = Fleet(
        str(home), f"{reached}:{port or free_port(host)}", tls, nodes if simulation else 0, host
    )
    certificates = make_certificates(home / "keys", hosts_of(host)) if tls else None
    write_connection(fleet.flower_home, fleet.address, fleet.authority)
    fleet = _start(fleet, "superlink", superlink_command(fleet, certificates))
    try:
        _wait_until_reachable(fleet)
        for number in range(0 if simulation else nodes):
            fleet = add_node(fleet, number, nodes)
    except BaseException:
        down(home)
        raise
    return fleet


def superlink_command(fleet: Fleet, certificates: Certificates | None) -> list[str]:
    """How the SuperLink is started; its memory is a file, so that runs are still listed after a
    restart.
    """
    secure = ["--insecure"]
    if certificates is not None:
        secure = [
            *("--ssl-certfile", str(certificates.certificate)),
            *("--ssl-keyfile", str(certificates.key)),
            *("--ssl-ca-certfile", str(certificates.authority)),
            "--enable-supernode-auth",
        ]
    port = fleet.address.rpartition(":")[2]
    state = [
        "--database",
        str(fleet.folder / "flwr" / "state.db"),
        "--disable-runtime-dependency-installation",
    ]
    engine = ["--simulation"] if fleet.simulated else []
    return [
        program("flower-superlink"),
        *secure,
        *engine,
        "--host",
        fleet.host,
        "--port",
        port,
        *state,
    ]


def add_node(fleet: Fleet, client: int, clients: int) -> Fleet:
    """Start a SuperNode for one client; with TLS its key is made and registered first, and kept
    if it exists already.
    """
    key: Path | None = None
    if fleet.tls:
        known = (fleet.folder / "keys" / f"node-{client}").is_file()
        key, public = make_node_key(fleet.folder / "keys", f"node-{client}")
        if not known:
            _register(fleet, key, public)
    return _start(fleet, f"node-{client}", supernode_command(fleet, client, clients, key))


def _register(fleet: Fleet, key: Path, public: Path) -> None:
    """Make the SuperLink know a node's key, if it does not yet; a key that cannot be registered
    is not kept.
    """
    try:
        call(fleet.flower_home, "supernode", "register", str(public), CONNECTION)
    except RunError as error:
        if "already in use" not in error.what:
            key.unlink()
            raise


def supernode_command(fleet: Fleet, client: int, clients: int, key: Path | None) -> list[str]:
    """How a SuperNode of this fleet is started."""
    secure = ["--insecure"]
    if fleet.tls:
        secure = ["--root-certificates", str(fleet.authority)] + (
            ["--auth-supernode-private-key", str(key)] if key else []
        )
    who = f"partition-id={client} num-partitions={clients}"
    place = ["--superlink", fleet.address, "--host", LOOPBACK, "--port", str(free_port(LOOPBACK))]
    return [program("flower-supernode"), *secure, *place, "--node-config", who]


def _start(fleet: Fleet, name: str, command: Sequence[str]) -> Fleet:
    home = private_folder(fleet.folder / "flwr" / name)
    started = start(name, command, fleet.folder / "logs" / f"{name}.log", environment(home))
    others = tuple(p for p in fleet.processes if p.name != name)
    return _write(replace(fleet, processes=(*others, started)))


def restart(home: Path, name: str) -> Fleet:
    """Start one of the fleet's processes again that has died; SuperLink and nodes keep address,
    key and memory.
    """
    fleet = read_fleet(home.resolve())
    reap()
    found = next((p for p in fleet.processes if p.name == name), None)
    if found is None:
        raise RunError(
            name,
            "is no part of this fleet",
            f"It has: {', '.join(p.name for p in fleet.processes)}",
        )
    if found.alive:
        raise RunError(name, "is running", "Stop it first")
    if name == "superlink":
        keys = fleet.folder / "keys"
        files = (
            Certificates(keys / "ca.crt", keys / "superlink.crt", keys / "superlink.key")
            if fleet.tls
            else None
        )
        fleet = _start(fleet, name, superlink_command(fleet, files))
        _wait_until_reachable(fleet)
        return fleet
    return add_node(fleet, int(name.removeprefix("node-")), len(fleet.processes) - 1)


def admit(home: Path, name: str) -> tuple[Path, list[str]]:
    """Make and register a key for a SuperNode on another machine: (the key, the command to start
    it there).
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise RunError(f"name '{name}'", "becomes a file name", "Use letters, digits, - and _")
    fleet = read_fleet(home.resolve())
    if not fleet.tls:
        raise RunError("fleet", "has no TLS: any node may join it", "Start it with --tls")
    check_reachable(fleet.address, fleet.authority)
    key, public = make_node_key(fleet.folder / "keys", name)
    _register(fleet, key, public)
    address = f"{hosts_of(fleet.host)[0]}:{fleet.address.rpartition(':')[2]}"
    # no telemetry there either
    quiet = [f"{name}={value}" for name, value in QUIET.items() if name.startswith("FLWR")]
    command = [
        *("env", *quiet, "flower-supernode"),
        *("--superlink", address),
        *("--root-certificates", "ca.crt"),
        *("--auth-supernode-private-key", key.name),
        *("--node-config", "partition-id=0"),
    ]
    return key, command


def _wait_until_reachable(fleet: Fleet) -> None:
    until = time.monotonic() + START_SECONDS
    process = next(p for p in fleet.processes if p.name == "superlink")
    while True:
        try:
            return check_reachable(fleet.address, fleet.authority, seconds=1.0)
        except RunError as error:
            if not process.alive or time.monotonic() > until:
                raise RunError(
                    "superlink", f"did not start: {last_lines(process.log)}", f"See {process.log}"
                ) from error
        time.sleep(0.2)


def free_port(host: str) -> int:
    """A port nobody listens on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in random.SystemRandom().sample(PORTS, 50):
        with contextlib.suppress(OSError), socket.create_server((host, port), family=family):
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


# ---------------------------------------------------------------- down


def down(home: Path) -> list[str]:
    """Stop the fleet's processes, nodes before the SuperLink; returns the names of those that
    were running.
    """
    fleet = read_fleet(home.resolve())
    nodes = [p for p in fleet.processes if p.name != "superlink"]
    stopped = stop(nodes) + stop([p for p in fleet.processes if p.name == "superlink"])
    os.unlink(fleet.folder / SHEET)
    return stopped
