"""A fleet with TLS: registered nodes train, others are refused; keys are their owner's only;
nothing secret is logged.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from flwr.common.config import parse_config_args
from real_fleet import finish, make_app, run_app, wait_for

from fedskew.deploy import local_fleet, membership
from fedskew.deploy.addresses import free_port
from fedskew.deploy.fleet_sheet import read_fleet
from fedskew.deploy.flower_cli import check_reachable, environment
from fedskew.deploy.hospital import check, node_command, prepare
from fedskew.deploy.keys import keep_or_make_certificates, make_certificates, make_node_key
from fedskew.deploy.local_fleet import supernode_command
from fedskew.deploy.processes import start, stop
from fedskew.errors import RunError, RunFolderError
from fedskew.experiment.run import Run
from fedskew.runtime.flower.policy import read_policy

SMALL = {"data.clients": 3, "run.rounds": 1, "run.clients_per_round": 3, "data.client_test": "none"}

REFUSED = {
    "unregistered": "Failed to activate SuperNode",
    "anonymous": "admits SuperNodes with a registered key only",
    "plaintext": "Connection attempt failed",
}
FOREIGN = """    from flwr.app import Message, RecordDict

    node = next(iter(grid.get_node_ids()))
    odd = list(grid.push_messages([Message(RecordDict(), node, "query.hello")]))
    serve("""
ANSWER = """    reasons = [reply.error.reason for reply in grid.pull_messages(odd)]
    print("fedskew: the stranger was told:", *reasons)
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    home = tmp_path_factory.mktemp("secure") / "home"
    local_fleet.up(home, 2, tls=True)
    yield home
    local_fleet.down(home)


@pytest.fixture(scope="module")
def intruders(fleet, tmp_path_factory):
    """Client 2 three times: with a key nobody registered, without a key, in plain text. Ready
    when each was turned away.
    """
    folder, known = tmp_path_factory.mktemp("intruders"), read_fleet(fleet)
    stranger, _ = make_node_key(folder, "stranger")
    bare = supernode_command(known, 2, 3, None)
    plain = [
        part
        for part in supernode_command(known, 2, 3, None)
        if part not in ("--root-certificates", str(known.authority))
    ]
    commands = {"unregistered": supernode_command(known, 2, 3, stranger), "anonymous": bare,
                "plaintext": [plain[0], "--insecure", *plain[1:]]}  # fmt: skip
    started = [
        start(name, command, folder / f"{name}.log", environment(folder / name))
        for name, command in commands.items()
    ]
    try:
        wait_for(
            lambda: all(
                REFUSED[process.name] in Path(process.log).read_text() for process in started
            )
        )
        yield started
    finally:
        stop(started)


@pytest.fixture(scope="module")
def said(fleet, intruders, tmp_path_factory):
    """What a run prints; its ServerApp sends the first node a message that is not ours before it
    begins.
    """
    app = make_app(tmp_path_factory.mktemp("run") / "app", "fedavg", SMALL)
    text = (app / "server_app.py").read_text()
    (app / "server_app.py").write_text(text.replace("    serve(", FOREIGN) + ANSWER)
    printed = finish(run_app(fleet, app, "--config", "min-clients=2"), app)
    assert sorted(Run.load(app / "run").rounds[1].loss) == [0, 1], printed
    return printed


def test_only_registered_nodes_take_part(said, intruders):
    """The others are told so, are never known to the SuperLink, and the run goes on without
    them.
    """
    assert "client 2" not in said
    for process in intruders:
        log = Path(process.log).read_text()
        assert REFUSED[process.name] in log
        assert "SuperNode ID" not in log
        assert "Receiving" not in log


def test_a_client_refuses_a_message_that_is_not_ours(said):
    """It says why, and answers the next one."""
    assert "the stranger was told: <class 'fedskew.runtime.flower.records.ForeignMessage'>" in said
    assert "message: is not one of fedskew's. Run fedskew on both sides." in said


def test_keys_and_certificates_are_their_owners(fleet):
    private = (fleet / "keys", fleet / "nodes", fleet / "logs")
    for path in [fleet, *fleet.rglob("*")]:
        if path.parent in private or path == fleet / "fleet.json":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for folder in (fleet, fleet / "flwr", *private):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(list((fleet / "keys").iterdir())) == 3  # no node's key is among the server's
    assert len(list((fleet / "nodes").iterdir())) == 2 * 2


def test_nothing_secret_in_the_logs(fleet, said):
    logged = said + "".join(path.read_text() for path in (fleet / "logs").iterdir())
    assert "client 1 has joined" in logged
    for path in [*(fleet / "keys").iterdir(), *(fleet / "nodes").iterdir()]:
        if path.suffix in (".pub", ".crt"):
            continue
        body = [line for line in path.read_text().splitlines() if not line.startswith("-----")]
        assert body
        assert not any(line in logged for line in body)


def test_telemetry_is_off_unless_asked_for(tmp_path, monkeypatch):
    assert environment(tmp_path)["FLWR_TELEMETRY_ENABLED"] == "0"
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    assert environment(tmp_path)["FLWR_TELEMETRY_ENABLED"] == "1"


def test_wrong_certificate_and_no_superlink(fleet, tmp_path):
    address, other = read_fleet(fleet).address, make_certificates(tmp_path, ["127.0.0.1"])
    with pytest.raises(RunError, match="its certificate is not accepted"):
        check_reachable(address, other.authority)
    with pytest.raises(RunError, match=r"nobody answers.*fedskew flower up"):
        check_reachable(f"127.0.0.1:{free_port('127.0.0.1')}", None)
    with pytest.raises(RunError, match="there is no file"):
        check_reachable(address, tmp_path / "missing.crt")


@pytest.mark.parametrize("wrong", ["certificate", "address"])
def test_the_command_line_says_so_in_one_line(wrong, fleet, tmp_path):
    app = make_app(tmp_path / "app", "fedavg", SMALL)
    make_certificates(tmp_path, ["127.0.0.1"])
    address = (
        read_fleet(fleet).address
        if wrong == "certificate"
        else f"127.0.0.1:{free_port('127.0.0.1')}"
    )
    where = ["--superlink", address, "--root-certificates", str(tmp_path / "ca.crt")]
    command = [
        sys.executable,
        "-m",
        "fedskew",
        "flower",
        "run",
        str(app),
        "--home",
        str(tmp_path / "home"),
        *where,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert (
        "its certificate is not accepted" if wrong == "certificate" else "nobody answers"
    ) in done.stderr


def test_two_fleets_in_one_folder(fleet):
    with pytest.raises(RunFolderError, match="a fleet is running here"):
        local_fleet.up(fleet, 1)


def test_admit_takes_a_public_key_and_binds_a_number_to_it(fleet, tmp_path):
    """The lowest free one, or the one asked for; the same again for the same key; never one that
    is taken.
    """
    papers = [prepare(tmp_path, f"hospital-{i}") for i in range(3)]
    found = [
        membership.admit(fleet, papers[0].public),
        membership.admit(fleet, papers[1].public, 7),
    ]
    assert [one.member.client for one in found] == [2, 7]  # 0 and 1 are nodes of this machine
    assert membership.admit(fleet, papers[0].public).member == found[0].member
    with pytest.raises(RunError, match="its key was admitted as client 2"):
        membership.admit(fleet, papers[0].public, 3)
    with pytest.raises(RunError, match="client 0: is node-0"):
        membership.admit(fleet, papers[2].public, 0)
    address = read_fleet(fleet).address
    line = ["fedskew", "flower", "join", "hospital-0", "--superlink", address, "--client", "2"]
    assert list(found[0].command) == line
    assert found[0].authority == fleet / "keys" / "ca.crt"
    assert not [path for path in fleet.rglob("*") if "hospital" in path.name]
    members = json.loads((fleet / "members.json").read_text())["members"]
    assert [(row["client"], row["name"]) for row in members] == [
        (0, "node-0"), (1, "node-1"), (2, "hospital-0"), (7, "hospital-1")
    ]  # fmt: skip


def test_admit_refuses_a_private_key_and_what_is_no_key(fleet, tmp_path):
    papers = prepare(tmp_path, "hospital")
    with pytest.raises(RunError, match="is a private key: it stays where it was made"):
        membership.admit(fleet, papers.key)
    (tmp_path / "odd.pub").write_text("ssh-ed25519 AAAA nobody\n")
    with pytest.raises(RunError, match="is no public key"):
        membership.admit(fleet, tmp_path / "odd.pub")
    papers.public.rename(tmp_path / ".. hospital.pub")
    with pytest.raises(RunError, match="becomes a file name"):
        membership.admit(fleet, tmp_path / ".. hospital.pub")


def test_join_makes_files_that_stay_and_are_its_owners(tmp_path):
    first = prepare(tmp_path, "hospital")
    kept = [path.read_bytes() for path in (first.key, first.public, first.policy, first.ledger)]
    again = prepare(tmp_path, "hospital")
    assert kept == [
        path.read_bytes() for path in (again.key, again.public, again.policy, again.ledger)
    ]
    assert first.apps.read_text() == ""  # no app runs yet
    first.public.unlink()
    assert prepare(tmp_path, "hospital").public.read_bytes() == kept[1]
    assert stat.S_IMODE(first.key.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.ledger.stat().st_mode) == 0o600
    assert read_policy(first.policy).signals == ()


def test_join_names_a_wrong_clock(fleet, tmp_path, monkeypatch):
    """Flower would stop it with a bare 401."""
    known, papers = read_fleet(fleet), prepare(tmp_path, "hospital")
    assert check(papers, known.address, known.authority) == read_policy(papers.policy)
    real = time.time
    monkeypatch.setattr("fedskew.deploy.hospital.time.time", lambda: real() + 62)
    with pytest.raises(RunError, match=r"this machine's is 6[0-2] s ahead of the server's"):
        check(papers, known.address, known.authority)


def test_two_nodes_of_one_machine_have_ports_of_their_own(tmp_path):
    """Flower's own default is the same for all of them."""
    papers = prepare(tmp_path / "with space", "hospital")
    commands = [node_command(papers, "x:1", tmp_path / "ca.crt", client) for client in (0, 1)]
    ports = [command[command.index("--port") + 1] for command in commands]
    assert len(set(ports)) == 2
    config = parse_config_args([commands[0][-1]])
    assert config == {"partition-id": 0, "policy": str(papers.policy)}


def test_certificates_are_kept_as_long_as_they_fit(tmp_path):
    first = keep_or_make_certificates(tmp_path, ["127.0.0.1", "localhost"]).authority.read_bytes()
    assert keep_or_make_certificates(tmp_path, ["127.0.0.1"]).authority.read_bytes() == first
    assert keep_or_make_certificates(tmp_path, ["192.0.2.1"]).authority.read_bytes() != first


def test_restart_knows_its_fleet(fleet):
    with pytest.raises(
        RunError, match=r"is no part of this fleet\. It has: superlink, gate, warm, node-0, node-1"
    ):
        local_fleet.restart(fleet, "node-7")
    with pytest.raises(RunError, match="is running"):
        local_fleet.restart(fleet, "superlink")


def test_down_stops_only_what_it_started(tmp_path):
    """A process number that now belongs to somebody else is left alone."""
    ours = start("ours", ["sleep", "60"], tmp_path / "log", dict(os.environ))
    with subprocess.Popen(["sleep", "60"]) as other:
        taken = type(ours)("superlink", other.pid, "another birth", str(tmp_path / "log"))
        assert stop([ours, taken], grace_seconds=2) == ["ours"]
        assert other.poll() is None
        os.kill(other.pid, signal.SIGKILL)
    wait_for(lambda: not ours.alive, seconds=5)
