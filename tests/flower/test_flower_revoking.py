"""Keys, with real processes: one is revoked in the middle of a round, another one takes its place
while the run goes on, and after a restore from a backup it is still so.

Clients wait in every round until they are told to train (``steps``), so everything happens where
it shall, however busy the machine is.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from real_fleet import finish, is_online, make_app, run_app, said, wait_for
from steps import Steps, add_steps

from fedskew.deploy import local_fleet, membership
from fedskew.deploy.fleet_sheet import read_fleet
from fedskew.deploy.flower_cli import environment
from fedskew.deploy.keys import make_node_key
from fedskew.deploy.local_fleet import supernode_command
from fedskew.deploy.processes import start, stop
from fedskew.errors import RunError
from fedskew.experiment.run import Run

SETTINGS = {
    "data.clients": 2, "run.rounds": 3, "run.clients_per_round": 2, "data.client_test": "none",
    "local.epochs": 1,
}  # fmt: skip
PATIENT = ("--config", "hello-seconds=600")  # newcomers are in the next round, however slow
REFUSED = "Failed to activate SuperNode"


@dataclass
class Day:
    """What was seen."""

    home: Path
    folder: Path
    heard: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    folder = tmp_path_factory.mktemp("day")
    home, steps = folder / "home", Steps(folder / "steps")
    app = add_steps(make_app(folder / "app", "fedavg", SETTINGS), steps)
    local_fleet.up(home, 2, tls=True)
    day, more, run = Day(home, folder), [], None
    try:
        run = run_app(home, app, *PATIENT)
        _revoke(day, steps, run)
        _rotate(day, steps, run, more)
        day.heard["run"] = finish(run, app)
        _restore(day, more)
        yield day
    finally:
        if run is not None:
            run.kill()
        for round in (1, 2, 3):
            steps.go(round, 0, 1)
        stop(more)
        local_fleet.down(day.home)


def _revoke(day: Day, steps: Steps, run) -> None:
    """In round 1, while both train: client 0 is out, client 1 is waited for."""
    wait_for(lambda: steps.at(1, 0, 1), run)
    day.heard["revoke"] = said(day.home, "revoke", "node-0")
    steps.go(1, 1)
    wait_for(lambda: steps.at(2, 1), run)
    steps.go(1, 0)


def _rotate(day: Day, steps: Steps, run, more: list) -> None:
    """In round 2: another key for client 0. In round 3 it takes part."""
    with pytest.raises(RunError, match="node-0: its key was revoked at"):
        membership.admit(day.home, day.home / "nodes" / "node-0.pub", 0)
    key, public = make_node_key(day.folder, "hospital")
    day.heard["admit"] = said(day.home, "admit", str(public), "--client", "0")
    more.append(_node(day, "hospital", key))
    wait_for(lambda: is_online(more[0].log), run)
    steps.go(2, 1)
    steps.go(3, 0, 1)


def _node(day: Day, name: str, key: Path):
    command = supernode_command(read_fleet(day.home), 0, 2, key)
    return start(
        name, command, day.folder / f"{name}.log", environment(day.folder / f"{name}.flwr")
    )


def _restore(day: Day, more: list) -> None:
    """The fleet is stopped and copied, its folder lost, the copy used; two keys knock."""
    stop(more)
    local_fleet.down(day.home)
    shutil.copytree(day.home, day.folder / "backup")
    shutil.rmtree(day.home)
    day.home = day.folder / "backup"
    local_fleet.up(day.home, 0, tls=True)
    more[:] = [
        _node(day, "kept", day.folder / "hospital"),
        _node(day, "gone", day.home / "nodes" / "node-0"),
    ]
    wait_for(lambda: is_online(more[0].log))
    wait_for(lambda: REFUSED in Path(more[1].log).read_text())


def test_a_revoked_node_is_out_at_once(day):
    """In the middle of its training; nobody waits for it until a deadline."""
    played = Run.load(day.folder / "app" / "run").rounds
    assert day.heard["revoke"].startswith("node-0 is client 0 no more (SHA256:")
    assert played[1].failures == {0: "the node has left"}
    assert list(played[1].loss) == [1]
    assert played[2].failures == {}
    assert list(played[2].loss) == [1]


def test_a_revoked_key_does_not_come_back(day):
    assert "SuperNode ID" not in (day.folder / "gone.log").read_text()
    members = json.loads((day.home / "members.json").read_text())
    assert [(row["name"], row["client"]) for row in members["revoked"]] == [("node-0", 0)]
    assert [row["name"] for row in members["members"]] == ["hospital", "node-1"]


def test_another_key_takes_the_place_while_the_run_goes_on(day):
    played = Run.load(day.folder / "app" / "run").rounds
    assert "hospital is client 0 (SHA256:" in day.heard["admit"]
    assert sorted(played[3].loss) == [0, 1]
    assert day.heard["run"].count("client 0 has joined") == 2


def test_a_restored_fleet_knows_its_members(day):
    """Who was admitted is, who was revoked is not."""
    assert is_online(str(day.folder / "kept.log"))
    assert REFUSED in (day.folder / "gone.log").read_text()
