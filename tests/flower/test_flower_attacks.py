"""A member of a fleet with TLS attacks the others, with real processes: hospital B has ``ca.crt``
and a registered key, hospital A a SuperNode and a secret.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from hospitals import Network, Site, network
from real_fleet import is_online, wait_for

from fedskew.deploy.flower_cli import environment, program
from fedskew.deploy.guarded_superlink import CAN_GUARD, owner_of
from fedskew.deploy.local_fleet import read_fleet
from fedskew.deploy.processes import start, stop

PROJECT = """
[project]
name = "evil"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "b"
[tool.flwr.app.components]
serverapp = "evil:server"
clientapp = "evil:client"
"""
EVIL = '''
from pathlib import Path
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server = ServerApp()
client = ClientApp()


@client.query()
def query(message, context):
    """Whatever folder the SuperNode was started in is read and written."""
    Path("looted").write_text(Path("hospital-a").read_text())
    return Message(RecordDict(), reply_to=message)


@server.main()
def main(grid, context):
    Path("conquered").touch()
    grid.send_and_receive([Message(RecordDict(), node, "query") for node in grid.get_node_ids()])
'''
CONNECTION = """
[superlink]
default = "x"
[superlink.x]
address = "{address}"
root-certificates = "{authority}"
"""
RAW = """
import ssl, socket, sys
context = ssl.create_default_context(cafile="ca.crt")
host, port = sys.argv[1].rsplit(":", 1)
raw = socket.create_connection((host, int(port)), 10)
with context.wrap_socket(raw, server_hostname=host) as s:
    s.sendall(sys.stdin.buffer.read())
    s.settimeout(10)
    data = b""
    try:
        while part := s.recv(65536):
            data += part
    except (TimeoutError, ConnectionError, ssl.SSLError):
        pass
sys.stdout.buffer.write(data)
"""


@dataclass(frozen=True)
class Scene:
    """The server's fleet, and what B was given."""

    network: Network
    address: str
    node_log: str

    @property
    def attacker(self) -> Site:
        return self.network["b"]


def fedskew(site: Site, *words: str) -> str:
    done = site.run(sys.executable, "-m", "fedskew", "flower", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def admitted(server: Site, hospital: Site, name: str) -> None:
    """A key for a hospital, registered at the server."""
    fedskew(server, "admit", name)
    keys = server.folder / ".fleet" / "keys"
    for file in (name, "ca.crt"):
        (hospital.folder / file).write_bytes((keys / file).read_bytes())


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attack")
    with network(folder) as net:
        server = net["server"]
        fedskew(server, "up", "--tls", "--host", server.address, "--nodes", "0")
        node = None
        try:
            for name in ("a", "b"):
                admitted(server, net[name], f"hospital-{name}")
            fleet = read_fleet(server.folder / ".fleet")
            command = [*net["a"].prefix, "env", "-C", str(net["a"].folder)]
            command += [program("flower-supernode"), "--superlink", fleet.address]
            command += ["--root-certificates", "ca.crt", "--node-config", "partition-id=0"]
            command += ["--auth-supernode-private-key", "hospital-a"]
            log = net["a"].folder / "node.log"
            node = start("node-a", command, log, environment(net["a"].folder / "flwr"))
            wait_for(lambda: is_online(str(log)))
            yield Scene(net, fleet.address, str(log))
        finally:
            if node is not None:
                stop([node])
            fedskew(server, "down")


@pytest.fixture(scope="module")
def evil_run(scene):
    """B submits an app of its own, with what every member has: ca.crt and the address."""
    site = scene.attacker
    (site.folder / "evil").mkdir()
    (site.folder / "evil" / "pyproject.toml").write_text(PROJECT)
    (site.folder / "evil" / "evil.py").write_text(EVIL)
    home = site.folder / "flwr"
    home.mkdir()
    text = CONNECTION.format(address=scene.address, authority=site.folder / "ca.crt")
    (home / "config.toml").write_text(text)
    return site.run(program("flwr"), "run", "evil", "x", "--stream", env=environment(home))


def raw(scene: Scene, request: bytes) -> list[int]:
    """The statuses with which the server answers these bytes from B."""
    site = scene.attacker
    done = subprocess.run(
        [*site.prefix, sys.executable, "-c", RAW, scene.address],
        cwd=site.folder, input=request, capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    lines = done.stdout.split(b"\r\n")
    return [int(line.split()[1]) for line in lines if line.startswith(b"HTTP/1.1 ")]


def test_a_member_cannot_run_code_on_the_server_or_at_another_member(scene, evil_run):
    assert not (scene.network["server"].folder / "conquered").exists()
    assert not (scene.network["a"].folder / "looted").exists()
    assert evil_run.returncode != 0
    assert "members of the fleet cannot reach this" in evil_run.stdout + evil_run.stderr
    assert "Receiving" not in Path(scene.node_log).read_text()


CLOSED = [
    "/v1/control/start-run",
    "/v1/control/register-node",
    "/v1/control/list-nodes",
    "/v1/control/get-login-details",
    "/v1/runtime/acquire-task",
    "/v1/runtime/push-messages",
    "/v1/runtime/responses",
    "/docs",
    "/openapi.json",
    "/health",
    "/fedskew/guard",
    "/v1/fleet/../control/start-run",
    "/v1/fleet/%2e%2e/control/start-run",
    "//v1/control/start-run",
    "/v1/fleet/get-fab/../../control/start-run",
    "http://127.0.0.1/v1/control/start-run",
    "/v1/fleet/get-fab?x=1",
    "/V1/FLEET/get-fab",
    "/v1/fleet/get-fab/",
]


@pytest.mark.parametrize("path", CLOSED)
def test_a_member_reaches_nothing_but_what_a_node_calls(path, scene):
    for method in ("POST", "GET"):
        request = (
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        assert raw(scene, request.encode()) == [404]


def test_no_request_hides_behind_another_one(scene):
    """One body, two lengths: whatever the gate makes of it, no call to the Control API arrives."""
    hidden = b"POST /v1/control/list-runs HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    before = b"POST /v1/fleet/get-fab HTTP/1.1\r\nHost: x\r\n"
    both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(hidden))
    log = scene.network["server"].folder / ".fleet" / "logs" / "superlink.log"
    asked = log.read_text().count("ControlServicer.ListRuns")
    assert 200 not in raw(scene, before + both + hidden)
    assert log.read_text().count("ControlServicer.ListRuns") == asked


def test_the_control_api_is_on_an_address_that_members_do_not_reach(scene):
    if not scene.network.apart:
        pytest.skip("network namespaces are refused here: loopback is everybody's")
    control = json.loads((scene.network["server"].folder / ".fleet" / "fleet.json").read_text())
    host, port = control["control"].rsplit(":", 1)
    code = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
    for place in (host, scene.network["server"].address):
        done = scene.attacker.run(sys.executable, "-c", code, place, port)
        assert "ConnectionRefused" in done.stderr, place


def test_another_user_of_the_server_cannot_submit_a_run(scene):
    """The Control API on loopback answers to the user who started the fleet."""
    server = scene.network["server"]
    if not CAN_GUARD:
        pytest.skip("this kernel does not tell whose socket it is")
    if os.geteuid() != 0:
        pytest.skip("only root can try as somebody else")
    control = json.loads((server.folder / ".fleet" / "fleet.json").read_text())["control"]
    code = f"""
import encodings.idna, http.client, os, ssl, sys
os.setgroups([]); os.setgid(65534); os.setuid(int(sys.argv[1]))
trusting = ssl._create_unverified_context()
for path in ("/v1/control/list-runs", "/v1/runtime/acquire-task", "/docs", "/v1/fleet/get-fab"):
    connection = http.client.HTTPSConnection("{control}", context=trusting, timeout=30)
    connection.request("POST", path)
    print(connection.getresponse().status, end=" ")
"""
    mine, others = (server.run(sys.executable, "-c", code, uid).stdout for uid in ("0", "65534"))
    assert others == "403 403 403 415 "
    assert "403" not in mine


def test_a_closed_connection_does_not_pass_for_roots(scene):
    """To the kernel its remains belong to user 0."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
        with peer:
            here, there = peer.getsockname(), peer.getpeername()
            assert owner_of(there, here) is not None
            client.close()
            assert owner_of(there, here) is None


def test_tls_is_checked(scene):
    """Without ca.crt nobody is talked to."""
    code = """
import socket, ssl, sys
host, port = sys.argv[1].rsplit(":", 1)
raw = socket.create_connection((host, int(port)))
ssl.create_default_context().wrap_socket(raw, server_hostname=host)
"""
    done = scene.attacker.run(sys.executable, "-c", code, scene.address)
    assert ssl.SSLCertVerificationError.__name__ in done.stderr
