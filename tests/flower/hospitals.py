"""A server and two hospitals that share nothing but a network: namespaces of this machine, or
loopback addresses where those are refused.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedskew.deploy.processes import Started, start

SITES = ("server", "a", "b")


@dataclass(frozen=True)
class Site:
    """One machine: its address, its folder, and how a command is run on it."""

    address: str
    folder: Path
    prefix: tuple[str, ...] = ()

    def run(self, *command: str, env: Mapping[str, str] | None = None, seconds: float = 300.0):
        """A command on this machine, to its end."""
        return subprocess.run(
            [*self.prefix, *command],
            cwd=self.folder,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )


@dataclass(frozen=True)
class Network:
    """The three sites; ``apart`` if no site can reach another one's loopback."""

    apart: bool
    sites: Mapping[str, Site] = field(default_factory=dict)
    hub: str = ""  # the namespace that all links meet in

    def __getitem__(self, name: str) -> Site:
        return self.sites[name]

    def link(self, name: str, state: str) -> None:
        """Take the link to a hospital "down", or "up" again."""
        assert _ip("-n", self.hub, "link", "set", f"to-{name}", state)


@contextlib.contextmanager
def network(folder: Path) -> Iterator[Network]:
    """A server at .1 and hospitals at .2 and .3, taken down again at the end."""
    for name in SITES:
        (folder / name).mkdir()
    spaces = {name: f"fs{os.getpid()}{name}" for name in SITES}
    apart = _ip("netns", "add", spaces["server"])
    try:
        if apart:
            _connect(spaces)
            prefix = {name: ("ip", "netns", "exec", space) for name, space in spaces.items()}
            address = {name: f"10.77.0.{i + 1}" for i, name in enumerate(SITES)}
        else:
            prefix = dict.fromkeys(SITES, ())
            address = {name: f"127.0.0.{i + 2}" for i, name in enumerate(SITES)}
        sites = {name: Site(address[name], folder / name, prefix[name]) for name in SITES}
        yield Network(apart, sites, spaces["server"])
    finally:
        for space in spaces.values() if apart else ():
            _ip("netns", "del", space)


def _connect(spaces: Mapping[str, str]) -> None:
    server = spaces["server"]
    _ip("-n", server, "link", "set", "lo", "up")
    _ip("-n", server, "link", "add", "fleet", "type", "bridge")
    _ip("-n", server, "addr", "add", "10.77.0.1/24", "dev", "fleet")
    _ip("-n", server, "link", "set", "fleet", "up")
    for number, name in enumerate(SITES[1:], start=2):
        space = spaces[name]
        _ip("netns", "add", space)
        _ip("-n", space, "link", "set", "lo", "up")
        pair = ("type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "add", f"to-{name}", "netns", server, *pair)
        _ip("-n", server, "link", "set", f"to-{name}", "master", "fleet", "up")
        _ip("-n", space, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")


def _ip(*words: str) -> bool:
    try:
        return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


# ---------------------------------------------------------------- what people type there


def fedskew(site: Site, *words: str) -> str:
    done = site.run(sys.executable, "-m", "fedskew", "flower", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def admitted(server: Site, hospital: Site, name: str) -> list[str]:
    """As two people would do it: a key made at the hospital, its public half admitted at the
    server, ca.crt and a line sent back.
    """
    fedskew(hospital, "join", name)
    (server.folder / f"{name}.pub").write_bytes((hospital.folder / f"{name}.pub").read_bytes())
    said = fedskew(server, "admit", f"{name}.pub")
    (hospital.folder / "ca.crt").write_bytes(
        (server.folder / ".fleet" / "keys" / "ca.crt").read_bytes()
    )
    return said.splitlines()[-1].split()


def start_node(site: Site, command: list[str]) -> Started:
    """A line that ``admit`` has printed, at the hospital, until it is stopped."""
    inside = [*site.prefix, "env", "-C", str(site.folder), sys.executable, "-m", *command]
    return start("node", inside, site.folder / "node.log", dict(os.environ))
