"""One run over real processes in which nearly everything goes wrong; each test looks at one part of
what came of it.

Clients 0 to 3 are there, and with them four nodes that do not belong: one claims client 0 as well,
one has no examples, one builds another model, one runs another program. Round 1: client 1 raises,
client 2 computes NaN, client 4 joins, and client 3's node is killed while it trains. Round 2 has to
do without it; then it comes back. Round 3: while client 0 trains, the SuperLink is killed. It is
started again and the run resumed.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from mishaps import EMPTY, FOREIGN, OTHER_MODEL, Flags, add_mishaps
from real_fleet import (
    extra_node,
    finish,
    is_online,
    log_of,
    make_app,
    nodes_of,
    pid_of,
    run_app,
    wait_for,
)

from fedskew.deploy import local_fleet
from fedskew.deploy.processes import Started, stop
from fedskew.experiment.run import Run
from fedskew.records import read_json, read_rounds
from fedskew.types import RoundRecord

SETTINGS = {
    "data.clients": 8,
    "run.clients_per_round": 5,
    "run.rounds": 3,
    "local.epochs": 1,
    "data.client_test": "none",
}
CONFIG = [
    "--config",
    "min-clients=5",
    "--config",
    "deadline-seconds=120",
]
CLAIMED = 0


@dataclass(frozen=True)
class Story:
    """What is left of the run."""

    before: list[RoundRecord]  # on disk when the SuperLink was killed
    interrupted: str  # printed up to then
    resumed: str  # printed afterwards
    result: Run
    sheets: list[dict[str, object]]
    left_over: list[str]


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    flags, home = Flags(folder / "flags"), folder / "home"
    app = add_mishaps(make_app(folder / "app", "fedavg", SETTINGS), flags)
    strangers = []
    local_fleet.up(home, 4)
    try:
        fleet = local_fleet.read_fleet(home)
        strangers = [
            extra_node(fleet, client, folder) for client in (CLAIMED, EMPTY, OTHER_MODEL, FOREIGN)
        ]
        wait_for(lambda: all(is_online(process.log) for process in [*nodes_of(fleet), *strangers]))
        yield play(home, app, flags, strangers)
    finally:
        for client in range(5):
            flags.go_on(client)
        stop(strangers)
        local_fleet.down(home)


def play(home: Path, app: Path, flags: Flags, strangers: list[Started]) -> Story:
    for client, what in ((1, "raise"), (2, "nan"), (3, "pause"), (4, "pause")):
        flags.tell(client, what)
    process = run_app(home, app, *CONFIG)
    wait_for(lambda: flags.training(3), process)  # round 1
    start_node(home, 4)
    os.kill(pid_of(home, "node-3"), signal.SIGKILL)
    flags.go_on(3)
    wait_for(lambda: flags.training(4), process)  # round 2
    local_fleet.restart(home, "node-3")
    flags.tell(3, "pause")
    wait_for(lambda: is_online(log_of(home, "node-3"), times=2))
    flags.go_on(4)
    wait_for(lambda: flags.training(3), process)  # round 3
    stop(strangers)  # while there is a SuperLink they can sign off at
    os.kill(pid_of(home, "superlink"), signal.SIGKILL)
    flags.go_on(3)
    interrupted, before = finish(process, app, code=2), read_rounds(app / "run")
    local_fleet.restart(home, "superlink")
    resumed = finish(run_app(home, app, "--resume", *CONFIG), app).removeprefix(interrupted)
    sheets = read_json(app / "run" / "fleet.json")["runs"]
    return Story(before, interrupted, resumed, Run.load(app / "run"), sheets, flags.remaining())


def start_node(home: Path, client: int) -> None:
    """A node of the fleet that comes late; returns when the SuperLink knows it."""
    local_fleet.add_node(local_fleet.read_fleet(home), client, 5)
    wait_for(lambda: is_online(log_of(home, f"node-{client}")))


def asked(record: RoundRecord) -> list[int]:
    """Whom a round asked, but for the node with another model: that shows when it is sent one."""
    everybody = {client for chain in record.chains for client in chain.clients}
    return sorted(everybody - {OTHER_MODEL})


def failures(record: RoundRecord) -> dict[int, str]:
    """Of the same clients."""
    return {client: why for client, why in record.failures.items() if client != OTHER_MODEL}


def test_everything_happened(story):
    assert story.left_over == []
    assert [r.round for r in story.result.rounds] == [0, 1, 2, 3]


def test_a_client_that_raises_and_one_that_sends_nan(story):
    """Each costs its own update, with the reason on record; both are asked again and reply."""
    first, second = story.result.rounds[1:3]
    assert (first.failures[1], first.failures[2]) == (
        "RuntimeError: the disk is gone",
        "non-finite loss",
    )
    assert {1, 2} <= set(second.loss)


def test_a_node_killed_while_it_trains(story):
    """It was asked, the round completes with the others, and it is back after its restart."""
    first, second, third = story.result.rounds[1:]
    assert asked(first) == [0, 1, 2, 3]
    assert first.failures[3] in ("the node has left", "no reply within 120 s")
    assert (list(first.loss), set(failures(first))) == ([0], {1, 2, 3})
    assert "client 3 has left" in story.interrupted
    assert 3 not in asked(second)
    assert story.interrupted.count("client 3 has joined") == 2
    assert 3 in third.loss


def test_a_late_joiner_takes_part_from_the_next_round(story):
    assert asked(story.result.rounds[2]) == [0, 1, 2, 4]
    assert failures(story.result.rounds[2]) == {}
    assert "client 4 has joined" in story.interrupted


def test_a_killed_superlink_costs_no_accepted_update(story):
    """Round 3 was under way: another Flower run plays it again, from round 2's checkpoint."""
    assert "does not answer any more. Start it again" in story.interrupted
    assert [r.round for r in story.before] == [0, 1, 2]
    kept = story.result.rounds[:3]
    assert [(r.chains, r.loss, r.failures) for r in kept] == [
        (r.chains, r.loss, r.failures) for r in story.before
    ]
    third = story.result.rounds[3]
    assert (sorted(third.loss), failures(third)) == ([0, 1, 2, 3, 4], {}), story.resumed
    assert np.isfinite(story.result.models).all()
    assert [(s["after_round"], s["last_round"]) for s in story.sheets] == [(-1, 2), (2, 3)]
    assert story.sheets[0]["flower_run"] != story.sheets[1]["flower_run"]


def test_nodes_that_do_not_belong_are_named_and_left_out(story):
    """Two nodes for one client, no examples, another model or program: the others go on."""
    said = story.interrupted
    assert (
        len(
            re.findall(
                rf"node \d+ also claims client {CLAIMED}, which is node \d+: it is left out", said
            )
        )
        == 1
    )
    assert said.count(f"client {CLAIMED} has joined") == 1
    assert re.search(rf"client {EMPTY} has joined \(node \d+, 0 examples\)", said)
    assert re.search(
        r"node \d+ takes no part: builds a model of another layout \(asked again", said
    )
    assert re.search(r"node \d+ takes no part: message: is not one of fedskew's", said)
    refused = [r.failures.get(OTHER_MODEL, "") for r in story.result.rounds]
    assert sum("is for a model of another layout" in why for why in refused) == 1
    used = [set(record.loss) for record in story.result.rounds]
    assert all(clients <= {0, 1, 2, 3, 4} for clients in used)
