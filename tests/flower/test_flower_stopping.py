"""A run is stopped in the middle of a round, by command, and goes on."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from real_fleet import finish, make_app, run_app, said, wait_for
from steps import Steps, add_steps

from fedskew.deploy import local_fleet
from fedskew.experiment.run import Run

SETTINGS = {
    "data.clients": 1, "run.rounds": 2, "run.clients_per_round": 1, "data.client_test": "none",
    "local.epochs": 1,
}  # fmt: skip


@dataclass
class Heard:
    """What the commands printed, by their names."""

    app: Path
    run_id: str = ""
    words: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stopping")
    home, steps = folder / "home", Steps(folder / "steps")
    found = Heard(add_steps(make_app(folder / "app", "fedavg", SETTINGS), steps))
    local_fleet.up(home, 1)
    try:
        steps.go(1, 0)
        run = run_app(home, found.app)
        wait_for(lambda: steps.at(2, 0), run)
        found.words["status"] = said(home, "status")
        found.run_id = json.loads(said(home, "stop", "--json"))["run-id"]
        found.words["stopped"] = finish(run, found.app, code=2)
        found.words["log"] = said(home, "log")
        found.words["after"] = said(home, "status", "--json")
        steps.go(2, 0)
        found.words["resumed"] = finish(run_app(home, found.app, "--resume"), found.app)
        yield found
    finally:
        steps.go(2, 0)
        local_fleet.down(home)


def test_status_says_how_far_the_run_is(heard):
    assert f"run {heard.run_id} running" in heard.words["status"]
    assert "; round 1 of 2" in heard.words["status"]


def test_whoever_follows_a_stopped_run_is_told(heard):
    why = "was stopped. Finished rounds are on disk: --resume goes on"
    assert f"Flower run {heard.run_id}: {why}" in " ".join(heard.words["stopped"].split())


def test_a_stopped_run_has_ended(heard):
    (found,) = json.loads(heard.words["after"])["runs"]
    assert found["status"] == "finished:stopped"
    assert found["folder"] == str(heard.app / "run")


def test_its_log_is_still_there(heard):
    assert "round 1: " in heard.words["log"]
    assert "round 2: " not in heard.words["log"]


def test_it_goes_on_with_resume(heard):
    run = Run.load(heard.app / "run")
    assert run.finished
    assert [list(one.loss) for one in run.rounds] == [[], [0], [0]]
