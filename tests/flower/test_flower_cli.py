"""Calling Flower's commands, and our bytes against Flower's, without processes of a fleet."""

from __future__ import annotations

import io
import stat
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from fake_grid import FakeGrid, server_context
from flwr.cli.build import build_fab_from_disk
from typer.testing import CliRunner

from fedskew.cli.flower import app, fleet
from fedskew.cli.flower.outcome import traffic_table
from fedskew.deploy import flower_cli
from fedskew.deploy.app import write_app
from fedskew.deploy.traffic import compare, stated_overhead
from fedskew.errors import RunError
from fedskew.experiment.fleet import serve
from fedskew.recipe import load, resolve
from fedskew.records import read_json


def bundled(app: Path) -> list[str]:
    """The files that Flower sends to every node."""
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(app))) as bundle:
        return sorted(bundle.namelist())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Flower's own
def test_the_records_of_a_run_do_not_travel_with_the_app(tmp_path):
    """They lie in the app's folder, and hold what clients have disclosed: label counts, losses."""
    write_app(tmp_path / "app", resolve(load("fedlecc")))
    before = bundled(tmp_path / "app")
    assert before == [".info/CONTENT", "client_app.py", "pyproject.toml", "recipe.toml",
                      "server_app.py", "task.py"]  # fmt: skip
    for name in ("run/rounds.jsonl", "run/labels.json", "run/recipe.toml", "other.json"):
        path = tmp_path / "app" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("secret")
    assert bundled(tmp_path / "app") == before
    (tmp_path / "app" / "mine.py").touch()
    assert "mine.py" in bundled(tmp_path / "app")


@pytest.fixture
def slow_flwr(tmp_path, monkeypatch):
    """A flwr command that needs two seconds."""
    path = tmp_path / "flwr"
    path.write_text(f"#!{sys.executable}\nimport time; time.sleep(2); print('{{}}')\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(flower_cli, "program", lambda name: str(path))
    return path


def test_flowers_commands_may_be_given_longer(slow_flwr, tmp_path, monkeypatch):
    monkeypatch.setenv(flower_cli.SECONDS_VARIABLE, "1")
    with pytest.raises(RunError, match=r"within 1 s.*FEDSKEW_FLWR_SECONDS=600"):
        flower_cli.call(tmp_path, "ls")
    monkeypatch.setenv(flower_cli.SECONDS_VARIABLE, "60")
    assert flower_cli.call(tmp_path, "ls") == {}


def test_the_limit_is_an_option_too(tmp_path, monkeypatch):
    monkeypatch.setenv(flower_cli.SECONDS_VARIABLE, "7")
    seen = []
    monkeypatch.setattr(
        fleet.local_fleet,
        "down",
        lambda home: seen.append(flower_cli.os.environ[flower_cli.SECONDS_VARIABLE]) or [],
    )
    CliRunner().invoke(app, ["--flwr-seconds", "600", "down"])
    CliRunner().invoke(app, ["down"])
    assert seen == ["600.0", "600.0"]


@pytest.mark.parametrize("aggregation", ["mean", "scaffold"])
def test_the_ledger_is_compared_with_what_a_fleet_sends(aggregation, tmp_path):
    """SCAFFOLD as published sends two vectors up; here the server works the second one out."""
    config = {
        "recipe": "fedavg",
        "set": f"data.clients=3; run.rounds=2; run.clients_per_round=3; local.epochs=1;"
        f"aggregation.use={aggregation}",
        "out": str(tmp_path),
        "poll-seconds": 0.0,
    }
    grid = FakeGrid(config)
    for client in range(3):
        grid.join(client)
    serve(grid, server_context(config), grid.task, Path("."))
    entry = read_json(tmp_path / "fleet.json")["runs"][0]
    bytes_ = {
        f"{name}bound-bytes": entry[f"payload_{way}"] + stated_overhead(entry, way)
        for way, name in (("down", "out"), ("up", "in"))
    }
    found = compare(tmp_path, [{"run-id": entry["flower_run"], "network-traffic": bytes_}])
    assert [abs(way.difference) < 1e-9 for way in found.values()] == [True, True], found
    assert bool(found["up"].unsent) == (aggregation == "scaffold")
    assert ("not sent" in [c.header for c in traffic_table(found).columns]) == (
        aggregation == "scaffold"
    )
