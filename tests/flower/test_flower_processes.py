"""One SuperLink and four SuperNodes as real processes: parity, bytes, faults, late joiner, SuperLink killed and resumed."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from real_fleet import finish, make_app, rounds_done, run_app, wait_for

from fedskew.deploy import local_fleet
from fedskew.deploy.flower_cli import list_runs
from fedskew.deploy.traffic import compare
from fedskew.experiment import run
from fedskew.finished import Run
from fedskew.records import read_rounds

SMALL = {"data.clients": 4, "run.rounds": 5, "run.clients_per_round": 2, "local.epochs": 1}
FLAGS = """

FLAGS = __import__("pathlib").Path({folder!r})


def load_data(client, settings):
    from dataclasses import replace

    if (FLAGS / f"raise-{{client}}").exists():
        raise RuntimeError("the disk is gone")
    data = recipe_share(client, settings)
    return replace(data, mean=data.mean * float("nan")) if (FLAGS / f"nan-{{client}}").exists() else data
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    home = tmp_path_factory.mktemp("fleet") / "home"
    local_fleet.up(home, 4)
    yield home
    local_fleet.down(home)


def pid_of(home, name):
    return next(p.pid for p in local_fleet.read_fleet(home).processes if p.name == name)


def test_five_rounds_of_fedlecc_and_of_a_sequential_recipe(fleet, tmp_path):
    """Both at once on the same fleet; each ends with the model and the choices of the local runtime."""
    recipes = {"fedlecc": ("fedlecc", {**SMALL, "selection.top_clusters": 2}),
               "chain": ("fedavg", {**SMALL, "procedure.use": "sequential"})}  # fmt: skip
    apps = {name: make_app(tmp_path / name, *recipe) for name, recipe in recipes.items()}
    running = {name: run_app(fleet, folder) for name, folder in apps.items()}
    for name, (recipe, settings) in recipes.items():
        said = finish(running[name], apps[name])
        played = Run.load(apps[name] / "run")
        local = run(recipe, settings=settings, seed=5, workers=1)
        assert [r.chains for r in played.rounds] == [r.chains for r in local.rounds]
        np.testing.assert_allclose(played.models, local.models, rtol=0, atol=1e-5)
        assert not any(r.failures for r in played.rounds)
        bytes_ = compare(apps[name] / "run", list_runs(local_fleet.read_fleet(fleet).flower_home))
        assert all(abs(way.difference) < 0.05 and way.messages == 18 for way in bytes_.values()), bytes_
        assert "difference" in said


def test_faults_late_joiner_and_a_killed_superlink(fleet, tmp_path):
    """Five clients, four there. In round 1 one raises and one sends NaN, and the fifth joins. In round 2 a node is killed. It
    comes back, the SuperLink is killed in the middle of round 3, and the run is resumed: every accepted update is kept."""
    settings = {**SMALL, "data.clients": 5, "run.clients_per_round": 5, "run.rounds": 4, "data.client_test": "none"}
    app = make_app(tmp_path / "app", "fedavg", settings, extra=FLAGS.format(folder=str(tmp_path)))
    out = app / "run"
    config = ["--config", "min-clients=4", "--config", "deadline-seconds=90", "--config", "wait-seconds=240"]
    process = run_app(fleet, app, *config)
    wait_for(lambda: rounds_done(out) >= 0)
    for flag in ("raise-1", "nan-2"):
        (tmp_path / flag).touch()
    local_fleet.add_node(local_fleet.read_fleet(fleet), 4, 5)
    wait_for(lambda: rounds_done(out) >= 1)
    os.kill(pid_of(fleet, "node-3"), signal.SIGKILL)
    for flag in ("raise-1", "nan-2"):
        (tmp_path / flag).unlink()
    wait_for(lambda: rounds_done(out) >= 2)
    local_fleet.restart(fleet, "node-3")
    os.kill(pid_of(fleet, "superlink"), signal.SIGKILL)
    assert "does not answer any more. Start it again" in finish(process, app, code=2)
    before = read_rounds(out)
    local_fleet.restart(fleet, "superlink")
    config[1] = "min-clients=5"
    said = finish(run_app(fleet, app, "--resume", *config), app)

    result = Run.load(out)
    assert [r.round for r in result.rounds] == list(range(5))
    assert [(r.chains, r.loss) for r in result.rounds[:3]] == [(r.chains, r.loss) for r in before]
    assert result.rounds[1].failures == {1: "RuntimeError: the disk is gone", 2: "non-finite loss"}
    assert sorted(result.rounds[1].loss) == [0, 3]
    assert "client 4 has joined" in said
    assert result.rounds[2].failures[3] in ("the node has left", "no reply within 90 s")
    assert set(result.rounds[2].failures) == {3}
    assert {0, 1, 2} <= set(result.rounds[2].loss) <= {0, 1, 2, 4}
    for record in result.rounds[3:]:
        assert (sorted(record.loss), record.failures) == ([0, 1, 2, 3, 4], {}), said
    assert np.isfinite(result.models).all()
