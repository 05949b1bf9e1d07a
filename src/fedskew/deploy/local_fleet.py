"""A SuperLink and some SuperNodes on this machine: start them, look after them, stop exactly them.

Everything lies in one folder that only its owner can read: ``fleet.json`` (what runs, with process
numbers and times of birth), ``logs/``, ``keys/`` and Flower's own files in ``flwr/``.

The SuperLink listens on loopback and answers its own user only (:mod:`guarded_superlink`). With TLS
members of the fleet come in by the :mod:`gate`, which lets a SuperNode answer and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from fedskew.deploy import guarded_superlink
from fedskew.deploy.flower_cli import (
    CONNECTION,
    QUIET,
    call,
    check_reachable,
    environment,
    program,
    status_of,
    write_connection,
)
from fedskew.deploy.guarded_superlink import CAN_GUARD, MARK
from fedskew.deploy.keys import (
    Certificates,
    make_certificates,
    make_node_key,
    private_folder,
    write_private,
)
from fedskew.deploy.processes import Started, last_lines, reap, start, stop
from fedskew.errors import RunError, RunFolderError
from fedskew.runtime.flower.policy import KEY, OPEN, VARIABLE

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
    address: str  # where nodes connect: the gate with TLS, else the SuperLink itself
    tls: bool
    simulated: int = 0  # virtual nodes on Ray instead of SuperNodes
    # what nodes' address listens on; the address is where this machine reaches it
    host: str = LOOPBACK
    control: str = ""  # where runs are submitted, on loopback: the SuperLink
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
        return self.certificates.authority if self.certificates else None

    @property
    def certificates(self) -> Certificates | None:
        """The files behind TLS."""
        keys = self.folder / "keys"
        files = (keys / "ca.crt", keys / "superlink.crt", keys / "superlink.key")
        return Certificates(*files) if self.tls else None


# ---------------------------------------------------------------- the sheet


def read_fleet(home: Path) -> Fleet:
    """The fleet of a folder."""
    try:
        raw = json.loads((home / SHEET).read_text())
        raw["control"] = raw.get("control") or raw["address"]
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
    fleet = _planned(home, host, port, tls, nodes if simulation else 0)
    if tls:
        make_certificates(home / "keys", hosts_of(host))
    write_connection(fleet.flower_home, fleet.control, fleet.authority)
    try:
        fleet = start_superlink(fleet)
        fleet = start_gate(fleet) if tls else fleet
        for number in range(0 if simulation else nodes):
            fleet = add_node(fleet, number, nodes)
    except BaseException:
        if (home / SHEET).is_file():
            down(home)
        raise
    return fleet


def _planned(home: Path, host: str, port: int, tls: bool, simulated: int) -> Fleet:
    reached = LOOPBACK if host in EVERYWHERE else host
    address = f"{reached}:{port or free_port(host)}"
    control = f"{LOOPBACK}:{free_port(LOOPBACK)}" if tls else address
    return Fleet(str(home), address, tls, simulated, host, control)


def start_superlink(fleet: Fleet) -> Fleet:
    """Start it and wait until it answers, to us and to no other user of this machine."""
    fleet = _start(fleet, "superlink", superlink_command(fleet))
    _wait_until_reachable(fleet, "superlink", fleet.control)
    if CAN_GUARD and status_of(fleet.control, fleet.authority, "GET", MARK) != 200:
        raise RunError(
            "superlink",
            "does not ask who submits a run (another version of Flower?)",
            "Install the versions of constraints-flower.txt",
        )
    return fleet


def superlink_command(fleet: Fleet) -> list[str]:
    """How the SuperLink is started; its memory is a file, so that runs are still listed after a
    restart.
    """
    files = fleet.certificates
    secure = ["--insecure"]
    if files is not None:
        secure = ["--ssl-certfile", str(files.certificate), "--ssl-keyfile", str(files.key),
                  "--ssl-ca-certfile", str(files.authority), "--enable-supernode-auth"]  # fmt: skip
    host, _, port = fleet.control.rpartition(":")
    state = ["--database", str(fleet.folder / "flwr" / "state.db")]
    more = ["--disable-runtime-dependency-installation"]
    engine = ["--simulation"] if fleet.simulated else []
    command = _python(guarded_superlink.__name__) if CAN_GUARD else [program("flower-superlink")]
    return [*command, *secure, *engine, "--host", host, "--port", port, *state, *more]


def start_gate(fleet: Fleet) -> Fleet:
    """Start what members reach, and see as one of them that it does not let them submit a run."""
    fleet = _start(fleet, "gate", gate_command(fleet))
    _wait_until_reachable(fleet, "gate", fleet.address)
    for path in ("/v1/control/list-runs", "/v1/runtime/acquire-task"):
        if status_of(fleet.address, fleet.authority, "POST", path) != 404:
            raise RunError("gate", f"lets members reach {path}", "Report this, please")
    return fleet


def gate_command(fleet: Fleet) -> list[str]:
    """How the gate is started."""
    files = fleet.certificates
    if files is None:
        raise RunError("gate", "stands before a fleet with TLS", "Start it with --tls")
    place = ["--host", fleet.host, "--port", fleet.address.rpartition(":")[2]]
    secure = ["--certificate", str(files.certificate), "--key", str(files.key)]
    behind = ["--superlink", fleet.control, "--authority", str(files.authority)]
    return [*_python("fedskew.deploy.gate"), *place, *secure, *behind]


def _python(module: str) -> list[str]:
    """A module as a program; -P: files of the folder we are in are not imported."""
    program("flower-superlink")  # Flower is installed, or an error says how
    return [sys.executable, "-P", "-m", module]


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
    who = f'partition-id={client} num-partitions={clients} {KEY}="{OPEN}"'
    place = ["--superlink", fleet.address, "--host", LOOPBACK, "--port", str(free_port(LOOPBACK))]
    return [program("flower-supernode"), *secure, *place, "--node-config", who]


def _start(fleet: Fleet, name: str, command: Sequence[str]) -> Fleet:
    env = environment(private_folder(fleet.folder / "flwr" / name))
    if fleet.simulated:
        env[VARIABLE] = OPEN  # virtual nodes have no configuration of their own
    started = start(name, command, fleet.folder / "logs" / f"{name}.log", env)
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
        return start_superlink(fleet)
    if name == "gate":
        return start_gate(fleet)
    nodes = sum(process.name.startswith("node-") for process in fleet.processes)
    return add_node(fleet, int(name.removeprefix("node-")), nodes)


def admit(home: Path, name: str) -> tuple[Path, list[str]]:
    """Make and register a key for a SuperNode on another machine: (the key, the command to start
    it there).
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise RunError(f"name '{name}'", "becomes a file name", "Use letters, digits, - and _")
    fleet = read_fleet(home.resolve())
    if not fleet.tls:
        raise RunError("fleet", "has no TLS: any node may join it", "Start it with --tls")
    check_reachable(fleet.control, fleet.authority)
    key, public = make_node_key(fleet.folder / "keys", name)
    _register(fleet, key, public)
    address = f"{hosts_of(fleet.host)[0]}:{fleet.address.rpartition(':')[2]}"
    # no telemetry there either
    quiet = [f"{name}={value}" for name, value in QUIET.items() if name.startswith("FLWR")]
    command = ["env", *quiet, "flower-supernode", "--superlink", address, "--root-certificates", "ca.crt",
               "--auth-supernode-private-key", key.name, "--node-config", "partition-id=0"]  # fmt: skip
    return key, command


def _wait_until_reachable(fleet: Fleet, name: str, address: str) -> None:
    until = time.monotonic() + START_SECONDS
    process = next(p for p in fleet.processes if p.name == name)
    while True:
        try:
            return check_reachable(address, fleet.authority, seconds=1.0)
        except RunError as error:
            reap()
            if not process.alive or time.monotonic() > until:
                raise RunError(
                    name, f"did not start: {last_lines(process.log)}", f"See {process.log}"
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
    order = {"superlink": 2, "gate": 1}  # nodes sign off while there is somebody to sign off at
    stopped: list[str] = []
    for step in range(3):
        stopped += stop([p for p in fleet.processes if order.get(p.name, 0) == step])
    os.unlink(fleet.folder / SHEET)
    return stopped
