"""What members of a fleet with TLS can do and cannot, with real processes: hospital A has a
SuperNode and a secret, hospital B ``ca.crt``, a registered key and bad intentions.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from hospitals import Network, Site, admitted, fedskew, network, start_node
from real_fleet import PATIENCE_SECONDS, is_online, wait_for

from fedskew.deploy.fleet_sheet import read_fleet
from fedskew.deploy.flower_cli import environment, program
from fedskew.deploy.guarded_superlink import CAN_GUARD, owner_of
from fedskew.deploy.processes import start, stop
from fedskew.experiment.run import Run

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
    letters = [Message(RecordDict(), node, "query") for node in grid.get_node_ids()]
    grid.send_and_receive(letters, timeout=60)
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


WRONG_CLOCK = """
import datetime
import flwr.supernode.node_auth_http_interceptor as signing
from flwr.supernode.cli import flower_supernode
now = signing.now
signing.now = lambda: now() + datetime.timedelta(hours=1)
flower_supernode()
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


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("members")
    with network(folder) as net:
        server, nodes = net["server"], []
        fedskew(server, "up", "--tls", "--host", server.address, "--nodes", "0")
        try:
            lines = {name: admitted(server, net[name], f"hospital-{name}") for name in ("a", "b")}
            nodes.append(start_node(net["a"], lines["a"]))
            wait_for(lambda: is_online(nodes[0].log))
            yield Scene(net, read_fleet(server.folder / ".fleet").address, nodes[0].log)
        finally:
            stop(nodes)
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


# ---------------------------------------------------------------- what they can do


@pytest.fixture(scope="module")
def liar(scene):
    """B's node says that it is client 0, which is A."""
    host = scene.address
    line = ["fedskew", "flower", "join", "hospital-b", "--superlink", host, "--client", "0"]
    node = start_node(scene.attacker, line)
    wait_for(lambda: is_online(node.log))
    yield node
    stop([node])


@pytest.fixture(scope="module")
def evil_server(scene, evil_run):
    """The server itself submits B's app: it runs there, but at A nobody has approved it."""
    server = scene.network["server"]
    shutil.copytree(scene.attacker.folder / "evil", server.folder / "evil")
    command = [program("flwr"), "run", "evil", "fedskew"]
    done = server.run(*command, env=environment(server.folder / ".fleet" / "flwr" / "cli"))
    assert done.returncode == 0, done.stdout + done.stderr
    wait_for(lambda: "is not on the list" in Path(scene.node_log).read_text())
    return done


@pytest.fixture(scope="module")
def approved(scene, evil_server, liar):
    """An honest app: sent to both hospitals, read there, approved."""
    server = scene.network["server"]
    few = ("data.clients=2", "run.rounds=1", "run.clients_per_round=2", "local.epochs=1")
    sets = [word for setting in few for word in ("--set", setting)]
    fedskew(server, "new", "app", "--recipe", "fedlecc", *sets)
    for name in ("a", "b"):
        shutil.copytree(server.folder / "app", scene.network[name].folder / "app")
        fedskew(scene.network[name], "approve", "app", f"hospital-{name}")


def run_recipe(scene: Scene, name: str):
    """FedLECC, which wants label counts, on whoever is there."""
    server = scene.network["server"]
    words = ("run", "app", "--out", name, "--config", "min-clients=1")
    return server.run(sys.executable, "-m", "fedskew", "flower", *words, seconds=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def refused(scene, approved):
    """A run that asks for what A's policy, as ``join`` has made it, does not give."""
    return run_recipe(scene, "refused")


@pytest.fixture(scope="module")
def allowed(scene, refused):
    """The same run after A has changed its policy; its node goes on running."""
    policy = scene.network["a"].folder / "hospital-a.toml"
    policy.write_text(policy.read_text().replace("signals = []", 'signals = ["exact"]'))
    return run_recipe(scene, "allowed")


def test_a_node_runs_no_app_that_nobody_there_has_approved(scene, evil_server):
    """Whoever submits it: the server's own ServerApp ran, A's ClientApp did not."""
    assert (scene.network["server"].folder / "conquered").exists()
    assert not (scene.network["a"].folder / "looted").exists()
    assert not (scene.network["b"].folder / "looted").exists()


def test_a_node_gives_no_more_than_its_policy_allows(refused):
    said = refused.stdout + refused.stderr
    why = "its policy does not give 'exact' label counts (allowed: none)"
    assert f"client 0 gives no label counts: {why}" in said
    assert "none of 1 clients gives its label counts" in said
    assert refused.returncode == 2


def test_a_node_that_is_allowed_to_answers(scene, allowed):
    assert allowed.returncode == 0, allowed.stdout + allowed.stderr
    result = Run.load(scene.network["server"].folder / "allowed")
    assert [sorted(r.loss) for r in result.rounds] == [[], [0]]
    assert sum(t.bytes for t in result.rounds[0].transfers if t.kind == "histogram") == 40


def test_a_member_cannot_pass_for_another_one(scene, refused):
    """A client's number is that of its key, whatever its node says."""
    members = json.loads((scene.network["server"].folder / ".fleet" / "members.json").read_text())
    node = {row["name"]: row["node"] for row in members["members"]}
    why = "says it is client 0, but its key was admitted as client 1"
    assert f"node {node['hospital-b']} takes no part: {why}" in refused.stdout
    assert f"client 0 has joined (node {node['hospital-a']}" in refused.stdout


def test_the_server_never_has_a_private_key_of_a_node(scene):
    secret = (scene.network["a"].folder / "hospital-a").read_text().splitlines()[1]
    for path in scene.network["server"].folder.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_a_node_whose_clock_is_ahead_is_told_so(scene, tmp_path):
    """Flower's own answer is a bare 401, on which the SuperNode ends without a word."""
    site, log = scene.attacker, tmp_path / "ahead.log"
    words = ["--superlink", scene.address, "--root-certificates", "ca.crt", "--port", "9999"]
    words += ["--auth-supernode-private-key", "hospital-b"]
    python = [sys.executable, "-c", WRONG_CLOCK, *words]
    command = [*site.prefix, "env", "-C", str(site.folder), *python]
    node = start("ahead", command, log, environment(tmp_path / "flwr"))
    try:
        wait_for(lambda: "Set both by NTP" in log.read_text())
    finally:
        stop([node])
    assert "the clock of this node is 3600 s ahead of the server's" in log.read_text()
