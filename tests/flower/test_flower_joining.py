"""Nodes that come late, were refused, fall silent or say they are somebody else, over a Grid
without processes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from fake_grid import TASK, FakeGrid, server_context
from flwr.app import Error, Message

from fedskew.errors import RunError
from fedskew.experiment.fleet import serve
from fedskew.runtime.flower import backoff, members

SMALL = "data.clients=4; run.clients_per_round=4; local.epochs=1; data.client_test=none"
HELLO = "query.hello"


def config_of(out: Path, changes: str = "", **more: object) -> dict[str, object]:
    quick = {"poll-seconds": 0.5, "wait-seconds": 0.0, "deadline-seconds": 300.0}
    asked = {"recipe": "fedavg", "set": f"run.rounds=4; {SMALL}; {changes}", "seed": 3}
    return {**asked, "out": str(out), **quick, **more}


def fleet(config: dict[str, object], clients: int = 4, **more: Any) -> FakeGrid:
    grid = FakeGrid(config, **more)
    for client in range(clients):
        grid.join(client)
    return grid


def play(grid: FakeGrid):
    return serve(grid, server_context(grid.config), grid.task, Path("."))


def who_trained(result) -> list[list[int]]:
    return [sorted(record.loss) for record in result.rounds[1:]]


def asked(grid: FakeGrid, node: int, kind: str = HELLO) -> int:
    return sum(one == (node, kind) for one in grid.log)


def trainings(grid: FakeGrid) -> int:
    return sum(kind == "train" for _, kind in grid.log)


@dataclass
class Clock:
    """Time passes only while somebody waits, or as a test says."""

    now: float = 1000.0
    waited: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.waited += seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    for name in ("attendance", "exchange", "greetings", "backoff"):
        monkeypatch.setattr(f"fedskew.runtime.flower.{name}.time", made)
    return made


# ---------------------------------------------------------------- refused, and asked again


def test_a_node_whose_data_come_later_joins(tmp_path, clock, capsys):
    """Refused at the hello because a file was missing: it is asked again after 5 s, then 10."""
    rounds = 60.0  # seconds each

    def load(client, settings):
        if client == 1 and trainings(grid) < 3:
            raise OSError("data.npz is missing")
        return TASK.load_data(client, settings)

    grid = fleet(config_of(tmp_path), task=replace(TASK, load_data=load))

    def tamper(node, question, reply):
        clock.now += rounds / 3 if question.metadata.message_type == "train" else 0
        return reply

    grid.tamper = tamper
    assert who_trained(play(grid)) == [[0, 2, 3]] + [[0, 1, 2, 3]] * 3
    said = capsys.readouterr().out
    assert "node 1001 takes no part: OSError: data.npz is missing (asked again in 5 s)" in said
    assert "client 1 has joined (node 1001, " in said
    assert "examples) after 1 refusals" in said
    assert asked(grid, 1001) == 2


def test_it_is_asked_less_and_less_often(tmp_path, clock):
    """40 rounds of 30 s with a node that never has its data: 5, 10, 20 ... 300 s between hellos."""

    def load(client, settings):
        if client == 1:
            raise OSError("data.npz is missing")
        return TASK.load_data(client, settings)

    grid = fleet(config_of(tmp_path, "run.rounds=40"), task=replace(TASK, load_data=load))

    def tamper(node, question, reply):
        clock.now += 10.0 if question.metadata.message_type == "train" else 0
        return reply

    grid.tamper = tamper
    play(grid)
    # after 30, 60, 90 (20 s waited out), 150, 240, 420, 750 and 1050 s
    assert 7 <= asked(grid, 1001) <= 9


def test_a_node_that_was_restarted_is_asked_at_once(tmp_path, clock):
    """With a registered key it keeps its number: gone and back is how a restart looks."""
    broken = [True]

    def load(client, settings):
        if client == 1 and broken[0]:
            raise OSError("data.npz is missing")
        return TASK.load_data(client, settings)

    grid = fleet(config_of(tmp_path), task=replace(TASK, load_data=load))

    def tamper(node, question, reply):
        if trainings(grid) == 1 and 1001 in grid.nodes:
            grid.leave(1001)
        if trainings(grid) == 4 and 1001 not in grid.nodes:
            broken[0] = False
            grid.join(1)
        return reply

    grid.tamper = tamper
    assert who_trained(play(grid)) == [[0, 2, 3]] * 2 + [[0, 1, 2, 3]] * 2


def test_a_node_that_seemed_to_have_left_is_asked_again(tmp_path, clock, capsys):
    """On a busy machine Flower may say so of a node that is there."""
    grid = fleet(config_of(tmp_path))
    gone = []

    def tamper(node, question, reply):
        clock.now += 10.0 if question.metadata.message_type == "train" else 0
        if node == 1002 and not gone:
            gone.append(node)
            return Message(Error(5, "Node Unavailable"), reply_to=question)
        return reply

    grid.tamper = tamper
    assert who_trained(play(grid)) == [[0, 1, 3]] + [[0, 1, 2, 3]] * 3
    assert (
        "node 1002 takes no part: the node has left (asked again in 5 s)" in capsys.readouterr().out
    )


def test_a_client_that_can_release_its_counts_later_is_asked_again(tmp_path, clock, monkeypatch):
    pytest.importorskip("opendp")
    private = "signal.use=private; selection.top_clusters=1"
    grid = fleet(config_of(tmp_path, private, recipe="fedlecc"))
    failed = []

    def tamper(node, question, reply):
        clock.now += 10.0 if question.metadata.message_type == "train" else 0
        if (node, question.metadata.message_type) == (1002, "query.release") and not failed:
            failed.append(node)
            return Message(Error(2, "<class 'RecipeError'>:<'no OpenDP'>"), reply_to=question)
        return reply

    grid.tamper = tamper
    result = play(grid)
    assert 2 not in result.rounds[1].loss
    assert asked(grid, 1002, "query.release") == 2
    assert asked(grid, 1001, "query.release") == 1
    assert result.rounds[0].failures == {2: "gave no label counts"}


# ---------------------------------------------------------------- silence


def silent(*nodes: int):
    return lambda node, question, reply: (
        None if node in nodes and question.metadata.message_type == HELLO else reply
    )


def test_a_silent_newcomer_costs_a_moment_once(tmp_path, clock):
    """Not two deadlines of 300 s for everybody."""
    grid = fleet(config_of(tmp_path, "run.rounds=6", **{"wait-seconds": 120.0}))
    quiet = silent(1009)

    def tamper(node, question, reply):
        if trainings(grid) == 4 and 1009 not in grid.nodes:
            grid.join(3, node=1009)
        return quiet(node, question, reply)

    grid.tamper = tamper
    assert who_trained(play(grid)) == [[0, 1, 2, 3]] * 6
    assert 30 <= clock.waited <= 31


def test_a_silent_node_at_the_start_costs_what_waiting_for_clients_costs(tmp_path, clock):
    grid = fleet(config_of(tmp_path, **{"wait-seconds": 120.0}))
    grid.tamper = silent(1003)
    assert who_trained(play(grid)) == [[0, 1, 2]] * 4
    assert 120 <= clock.waited <= 121


@dataclass
class Slow(FakeGrid):
    """Replies of some nodes arrive only after so many seconds."""

    clock: Clock = field(default_factory=Clock)
    delays: dict[int, float] = field(default_factory=dict)

    def pull_messages(self, message_ids):
        sent = self.__dict__.setdefault("sent", {})
        due = []
        for name in message_ids:
            since = sent.setdefault(name, self.clock.now)
            waiting = self._replies.get(name)
            node = waiting.metadata.src_node_id if waiting else 0
            if self.clock.now - since >= self.delays.get(node, 0.0):
                due.append(name)
        return super().pull_messages(due)


def test_a_late_answer_is_taken_in_when_it_comes(tmp_path, clock):
    """Client 3 needs 100 s for its hello: the rounds of 60 s go on without it until then."""
    grid = Slow(config_of(tmp_path), clock=clock, delays={1003: 100.0})
    for client in range(4):
        grid.join(client)

    def tamper(node, question, reply):
        if question.metadata.message_type == "train":
            clock.now += 20.0
            grid.delays.pop(1003, None) if trainings(grid) > 3 else None
        return reply

    grid.tamper = tamper
    trained = who_trained(play(grid))
    assert trained[0] == [0, 1, 2]
    assert trained[-1] == [0, 1, 2, 3]
    assert asked(grid, 1003) == 1


def test_a_run_does_not_give_up_while_a_hello_is_under_way(tmp_path, clock):
    """Everybody is slow: waiting-time is over, but an answer may still come."""
    grid = Slow(config_of(tmp_path, **{"wait-seconds": 10.0}), clock=clock, delays={})
    for client in range(4):
        grid.join(client)
        grid.delays[1000 + client] = 60.0
    trained = play(grid)
    assert who_trained(trained) == [[0, 1, 2, 3]] * 4


def test_nobody_answers(tmp_path, clock):
    grid = fleet(config_of(tmp_path))
    grid.tamper = silent(1000, 1001, 1002, 1003)
    with pytest.raises(RunError, match=r"0 clients have joined, 1 needed .*no reply within 300 s"):
        play(grid)
    assert 300 <= clock.waited <= 302


# ---------------------------------------------------------------- who is who


@pytest.fixture
def member_list(tmp_path, monkeypatch):
    """Keys 1000 to 1003 were admitted as clients 0 to 3."""
    path = tmp_path / "members.json"
    rows = [{"client": c, "name": f"h{c}", "key": "k", "node": 1000 + c} for c in range(4)]
    path.write_text(json.dumps({"members": rows}))
    monkeypatch.setenv(members.VARIABLE, str(path))
    return path


def test_a_client_is_who_its_key_was_admitted_as(tmp_path, member_list, clock, capsys):
    """Node 1003 says it is client 0, and it says so first; node 2000 was never admitted."""
    grid = FakeGrid(config_of(tmp_path / "run"))
    grid.join(0, node=1003)
    grid.join(3, node=2000)
    for client in range(3):
        grid.join(client)
    assert who_trained(play(grid)) == [[0, 1, 2]] * 4
    said = capsys.readouterr().out
    assert (
        "node 1003 takes no part: says it is client 0, but its key was admitted as client 3" in said
    )
    assert "node 2000 takes no part: was registered, but not by fedskew flower admit" in said
    assert not [1 for node, kind in grid.log if node in (1003, 2000) and kind == "train"]


def test_who_is_admitted_while_a_run_plays_takes_part(tmp_path, member_list, clock):
    grid = FakeGrid(config_of(tmp_path / "run", "data.clients=5; run.clients_per_round=5"))
    for client in range(5):
        grid.join(client)

    def tamper(node, question, reply):
        clock.now += 10.0 if question.metadata.message_type == "train" else 0
        if trainings(grid) == 4:
            rows = json.loads(member_list.read_text())["members"]
            new = {"client": 4, "name": "h4", "key": "k", "node": 1004}
            member_list.write_text(json.dumps({"members": [*rows, new]}))
        return reply

    grid.tamper = tamper
    trained = who_trained(play(grid))
    assert trained[0] == [0, 1, 2, 3]
    assert trained[-1] == [0, 1, 2, 3, 4]


def test_a_list_that_cannot_be_read_admits_nobody(tmp_path, member_list):
    member_list.write_text("{")
    with pytest.raises(RunError, match="cannot be read"):
        play(fleet(config_of(tmp_path / "run")))


def test_waiting_times():
    assert (backoff.FIRST_SECONDS, backoff.LONGEST_SECONDS) == (5.0, 300.0)
    waiting = backoff.Backoff()
    assert [waiting.failed(1) for _ in range(8)] == [5, 10, 20, 40, 80, 160, 300, 300]
