"""A SuperLink and some SuperNodes on this machine: start them, look after them, stop exactly them.

Everything lies in one folder that only its owner can read: ``fleet.json`` (what runs, with process
numbers and times of birth), ``members.json`` (whose key is which client), ``logs/``, ``keys/`` of
the server, ``nodes/`` (keys of the SuperNodes started here) and Flower's own files in ``flwr/``.

The SuperLink listens on loopback and answers its own user only (:mod:`guarded_superlink`). With TLS
members of the fleet come in by the :mod:`gate`, which lets a SuperNode answer and nothing else.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedskew.deploy import guarded_superlink, warm
from fedskew.deploy.addresses import EVERYWHERE, LOOPBACK, free_port, hosts_of
from fedskew.deploy.fleet_sheet import SHEET, Fleet, read_fleet, write_fleet
from fedskew.deploy.flower_cli import (
    check_reachable,
    environment,
    program,
    status_of,
    write_connection,
)
from fedskew.deploy.guarded_superlink import CAN_GUARD, MARK
from fedskew.deploy.keys import keep_or_make_certificates, make_node_key, private_folder
from fedskew.deploy.membership import register
from fedskew.deploy.processes import last_lines, reap, start, stop
from fedskew.deploy.warm import CAN_WARM, warm_environment
from fedskew.deploy.warm_call import SOCKET
from fedskew.errors import RunError, RunFolderError
from fedskew.runtime.flower import members
from fedskew.runtime.flower.policy import KEY, OPEN, VARIABLE
from fedskew.runtime.flower.undocumented import UNASKED

START_SECONDS = 300.0  # only against hanging for ever: one that has died is noticed at once


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
        keep_or_make_certificates(home / "keys", hosts_of(host))
    write_connection(fleet.flower_home, fleet.control, fleet.authority)
    try:
        fleet = start_superlink(fleet)
        fleet = start_gate(fleet) if tls else fleet
        fleet = start_warm(fleet) if CAN_WARM and not simulation else fleet
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
        secure = [
            *("--ssl-certfile", str(files.certificate)),
            *("--ssl-keyfile", str(files.key)),
            *("--ssl-ca-certfile", str(files.authority)),
            "--enable-supernode-auth",
        ]
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
    for path in UNASKED:
        if status_of(fleet.address, fleet.authority, "POST", path) != 404:
            raise RunError("gate", f"lets members reach {path}", "Report this, please")
    return fleet


def start_warm(fleet: Fleet) -> Fleet:
    """Start what answers the messages to nodes of this machine; nodes do without if it is gone."""
    return _start(fleet, "warm", [*_python(warm.__name__), str(_warm_folder(fleet))])


def _warm_folder(fleet: Fleet) -> Path:
    return private_folder(fleet.folder / "warm")


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
    name, key = f"node-{client}", None
    if fleet.tls:
        key, public = make_node_key(private_folder(fleet.folder / "nodes"), name)
        register(fleet, public, client)
    return _start(fleet, name, supernode_command(fleet, client, clients, key))


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
        env.setdefault("RAY_worker_niceness", "0")  # else they starve where anything else runs
    if fleet.tls:
        env[members.VARIABLE] = str(fleet.members)  # for the ServerApp
    if name.startswith("node-") and any(p.name == "warm" for p in fleet.processes):
        env = warm_environment(_warm_folder(fleet), env)
    started = start(name, command, fleet.folder / "logs" / f"{name}.log", env)
    others = tuple(p for p in fleet.processes if p.name != name)
    return write_fleet(replace(fleet, processes=(*others, started)))


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
    if name == "warm":
        return start_warm(fleet)
    nodes = sum(process.name.startswith("node-") for process in fleet.processes)
    return add_node(fleet, int(name.removeprefix("node-")), nodes)


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


# ---------------------------------------------------------------- down


def down(home: Path) -> list[str]:
    """Stop the fleet's processes, nodes before the SuperLink; returns the names of those that
    were running.
    """
    fleet = read_fleet(home.resolve())
    order = {
        "superlink": 2,
        "gate": 1,
        "warm": 1,
    }  # nodes sign off while there is somebody to sign off at
    stopped: list[str] = []
    for step in range(3):
        stopped += stop([p for p in fleet.processes if order.get(p.name, 0) == step])
    (_warm_folder(fleet) / SOCKET).unlink(missing_ok=True)  # a folder with a socket is not copied
    os.unlink(fleet.folder / SHEET)
    return stopped
