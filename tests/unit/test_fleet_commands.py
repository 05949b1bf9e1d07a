"""``fedskew flower status --watch | stop | log``: what they ask of Flower, and what they print."""

from __future__ import annotations

import json
import os

import pytest
from typer.testing import CliRunner

from fedskew.cli.flower import app, runs, watching
from fedskew.cli.flower import fleet as fleets
from fedskew.deploy import run_list
from fedskew.deploy.fleet_sheet import Fleet, write_fleet
from fedskew.deploy.processes import Started, birth_of
from fedskew.errors import RunError

TRAFFIC = {"outbound-bytes": 1234, "inbound-bytes": 56}


def flower_run(number: int, status: str) -> dict[str, object]:
    return {
        "run-id": str(number), "status": status, "network-traffic": TRAFFIC,
        "pending-at": f"2026-11-17T00:00:{number:02}Z",
    }  # fmt: skip


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """A fleet whose SuperLink is this very process, and what Flower says of its runs."""
    (tmp_path / "superlink.log").write_text("first\n\nsecond\nthird\n")
    mine = Started("superlink", os.getpid(), birth_of(os.getpid()), str(tmp_path / "superlink.log"))
    write_fleet(Fleet(str(tmp_path), "127.0.0.1:1", False, processes=(mine,)))
    known = [flower_run(1, "finished:completed"), flower_run(2, "running")]
    for module in (watching, run_list):
        monkeypatch.setattr(module, "list_runs", lambda home: known)
    return known


def said(tmp_path, *words: str) -> str:
    done = CliRunner().invoke(app, [*words, "--home", str(tmp_path)])
    if done.exception is not None:
        raise done.exception
    return done.output


def test_status_says_how_far_a_run_is(fleet, tmp_path, monkeypatch):
    run_list.note_run(tmp_path, "2", tmp_path / "played")
    monkeypatch.setattr(watching, "progress_text", lambda folder: f"round 3 in {folder.name}")
    lines = said(tmp_path, "status").splitlines()
    assert lines[-2:] == [
        "  run 1 finished:completed: 1,234 bytes down, 56 up",
        "  run 2 running: 1,234 bytes down, 56 up; round 3 in played",
    ]
    found = json.loads(said(tmp_path, "status", "--json"))
    assert [run["folder"] for run in found["runs"]] == [None, str(tmp_path / "played")]
    assert found["processes"]["superlink"]["alive"] is True


def test_status_is_watched_until_somebody_has_seen_enough(fleet, tmp_path, monkeypatch):
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        fleet[1]["status"] = f"after {len(waits)}"
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(watching.time, "sleep", sleep)
    words = ["status", "--watch", "--every", "7", "--json", "--home", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 130
    states = [json.loads(line)["runs"][1]["status"] for line in done.output.splitlines() if line]
    assert (states, waits) == (["running", "after 1", "after 2"], [7.0] * 3)


def test_a_run_that_would_be_refused_is_not_submitted(fleet, tmp_path, monkeypatch):
    """Flower would count it as failed, and its line in the status would have the round and the
    accuracy of the run whose folder it is.
    """
    reached = []
    monkeypatch.setattr(runs, "check_reachable", lambda *given: reached.append(given))
    monkeypatch.setattr(runs, "call", lambda *given: reached.append(given))
    folder = tmp_path / "app"
    (folder / "run").mkdir(parents=True)
    (folder / "pyproject.toml").touch()
    (folder / "run" / "result.json").touch()
    found = CliRunner().invoke(app, ["run", str(folder), "--home", str(tmp_path)])
    why = f"{folder / 'run'}: exists and is not empty. Use --resume to go on with it"
    assert why in str(found.exception)
    assert reached == []


def test_stop_ends_the_run_that_is_going_on(fleet, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(runs, "call", lambda home, *words: asked.append(words))
    assert "stopped run 2; finished rounds are on disk" in said(tmp_path, "stop")
    assert json.loads(said(tmp_path, "stop", "2", "--json")) == {"run-id": "2", "stopped": True}
    assert asked == [("stop", "2", "fedskew")] * 2


def test_stop_guesses_nothing(fleet, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "call", lambda *words: pytest.fail("asked Flower to stop one"))
    with pytest.raises(RunError, match=r"run 1: has ended \(finished:completed\)"):
        said(tmp_path, "stop", "1")
    with pytest.raises(RunError, match="run 7: is not known here"):
        said(tmp_path, "stop", "7")
    fleet.append(flower_run(3, "running"))
    with pytest.raises(RunError, match=r"plays 2, 3\. Say which one"):
        said(tmp_path, "stop")
    del fleet[1:]
    with pytest.raises(RunError, match="run 1: has ended"):
        said(tmp_path, "stop")
    fleet.clear()
    with pytest.raises(RunError, match="has had no run yet"):
        said(tmp_path, "stop")


def test_log_shows_a_run_or_a_process(fleet, tmp_path, monkeypatch):
    seen = []

    def log_lines(home, run_id, *, follow):
        seen.append((run_id, follow))
        yield from ("INFO : starting", "fedskew: round 0: accuracy 0.1", "fedskew: round 1")

    monkeypatch.setattr(runs, "log_lines", log_lines)
    assert said(tmp_path, "log").splitlines() == ["round 0: accuracy 0.1", "round 1"]
    assert said(tmp_path, "log", "1", "--all", "--follow").startswith("INFO : starting\nfedskew: ")
    assert seen == [("2", False), ("1", True)]
    assert said(tmp_path, "log", "superlink", "--lines", "2") == "second\nthird\n"
    lines = said(tmp_path, "log", "superlink", "--json").splitlines()
    assert json.loads(lines[-1]) == {"of": "superlink", "line": "third"}


def test_up_says_when_members_need_another_certificate(tmp_path, monkeypatch):
    def up(home, nodes, **options):
        (home / "keys").mkdir(exist_ok=True)
        (home / "keys" / "ca.crt").write_text(made[-1])
        return Fleet(str(home), "127.0.0.1:1", True, control="127.0.0.1:2")

    monkeypatch.setattr(fleets.local_fleet, "up", up)
    made = ["first"]
    assert "certificates" not in said(tmp_path, "up", "--tls")
    assert "certificates" not in said(tmp_path, "up", "--tls")
    made.append("second")
    text = " ".join(said(tmp_path, "up", "--tls").split())
    assert f"every member needs {tmp_path / 'keys' / 'ca.crt'} again" in text
