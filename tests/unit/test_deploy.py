"""Writing an app, comparing bytes, and the command line without Flower or without a fleet."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.util import find_spec

import pytest

from fedskew.deploy.app import write_app
from fedskew.deploy.traffic import ARRAYS_OVERHEAD_BYTES, OVERHEAD_BYTES, compare
from fedskew.errors import RunFolderError
from fedskew.experiment.local import run
from fedskew.recipe import load, resolve


def fedskew(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedskew", "flower", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_app_holds_the_whole_recipe(tmp_path):
    recipe = resolve(load("fedlecc"))
    files = write_app(tmp_path / "My Fleet", recipe, seed=7)
    assert resolve(load(tmp_path / "My Fleet" / "recipe.toml")) == recipe
    project = tomllib.loads((tmp_path / "My Fleet" / "pyproject.toml").read_text())
    assert project["project"]["name"] == "my-fleet"
    assert project["tool"]["flwr"]["app"]["config"]["seed"] == 7
    for path in files:
        assert "@" not in path.read_text().replace("@app", "")
        if path.suffix == ".py":
            compile(path.read_text(), str(path), "exec")
    with pytest.raises(RunFolderError, match="exists and is not empty"):
        write_app(tmp_path / "My Fleet", recipe)


def test_bytes_of_a_run_against_flowers(tmp_path):
    """Hand-made figures: Flower's count is the ledger, uncharged tests and the stated overhead."""
    run("fedavg", settings={"run.rounds": 2}, workers=1, out=tmp_path)
    model = 2410 * 4
    sheet = {"flower_run": "77", "after_round": -1, "test_down": 2 * model}
    sheet |= {"messages_down": 15, "arrays_down": 12, "messages_up": 15, "arrays_up": 10}
    (tmp_path / "fleet.json").write_text(json.dumps({"runs": [sheet]}))
    down, up = (
        12 * (model + ARRAYS_OVERHEAD_BYTES["down"]),
        10 * (model + ARRAYS_OVERHEAD_BYTES["up"]),
    )
    down, up = down + 15 * OVERHEAD_BYTES["down"], up + 15 * OVERHEAD_BYTES["up"]
    measured = [{"run-id": 77, "network-traffic": {"outbound-bytes": down, "inbound-bytes": up}}]
    found = compare(tmp_path, measured)
    assert (found["down"].ledger, found["down"].uncharged) == (10 * model, 2 * model)
    assert [way.difference for way in found.values()] == [0.0, 0.0]
    with pytest.raises(RunFolderError, match="does not know its run"):
        compare(tmp_path, [])
    with pytest.raises(RunFolderError, match="was not played over a fleet"):
        compare(tmp_path.parent, measured)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["run", "nowhere"], "is not a Flower app. Write one: fedskew flower new DIR"),
        (["status"], "no fleet was started here. Start one: fedskew flower up"),
        (["down"], "no fleet was started here"),
        (["up", "--host", "0.0.0.0"], "is open to others without protection. Add --tls"),
        (["up", "--simulation", "--tls"], "has one machine and at least one node"),
        (["new", "app", "--recipe", "fedavgg"], "Did you mean 'fedavg'?"),
    ],
)
def test_mistakes_are_one_line(arguments, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = fedskew(*arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert why in done.stderr


@pytest.mark.skipif(find_spec("flwr") is not None, reason="Flower is installed here")
def test_without_flower(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = fedskew("up")
    assert done.returncode == 2
    assert "is not installed. Run: pip install 'fedskew[flower]'" in done.stderr


def test_no_superlink_at_the_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert fedskew("new", "app").returncode == 0
    done = fedskew("run", "app", "--superlink", "127.0.0.1:9")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "SuperLink 127.0.0.1:9: nobody answers" in done.stderr
