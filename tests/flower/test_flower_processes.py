"""A SuperLink and four SuperNodes as real processes: five rounds of a parallel and of a
sequential recipe, and their bytes.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner, Result

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from real_fleet import finish, make_app, run_app

from fedskew.cli.flower import app as commands
from fedskew.deploy import local_fleet
from fedskew.deploy.fleet_sheet import read_fleet
from fedskew.deploy.flower_cli import list_runs
from fedskew.deploy.traffic import compare
from fedskew.experiment.local import run
from fedskew.experiment.run import Run
from fedskew.measure import counts_of_signal
from fedskew.recipe import load, resolve
from fedskew.records import read_state

SMALL = {"data.clients": 4, "run.rounds": 5, "run.clients_per_round": 2, "local.epochs": 1}
RECIPES = {
    "fedlecc": ("fedlecc", {**SMALL, "selection.top_clusters": 2}),
    "chain": ("fedavg", {**SMALL, "procedure.use": "sequential", "data.client_test": "none"}),
}
# who are you, rounds of two, tests at the clients
MESSAGES = {"fedlecc": 4 + 5 * 2 + 4, "chain": 4 + 5 * 2}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Both at once on the same fleet: recipe -> (run folder, what was printed), what Flower
    knows of them, and the fleet, which is still up.
    """
    folder = tmp_path_factory.mktemp("processes")
    apps = {name: make_app(folder / name, *recipe) for name, recipe in RECIPES.items()}
    home = folder / "home"
    local_fleet.up(home, 4)
    try:
        running = {name: run_app(home, app) for name, app in apps.items()}
        said = {name: finish(running[name], app) for name, app in apps.items()}
        yield (
            {name: (app / "run", said[name]) for name, app in apps.items()},
            list_runs(read_fleet(home).flower_home),
            home,
        )
    finally:
        local_fleet.down(home)


@pytest.mark.parametrize("name", RECIPES)
def test_five_rounds_end_with_the_model_of_the_local_runtime(name, played):
    fleet, (recipe, settings) = Run.load(played[0][name][0]), RECIPES[name]
    local = run(recipe, settings=settings, seed=5, workers=1)
    assert [r.round for r in fleet.rounds] == list(range(6))
    assert [r.chains for r in fleet.rounds] == [r.chains for r in local.rounds]
    np.testing.assert_allclose(fleet.models, local.models, rtol=0, atol=1e-5)
    assert not any(r.failures for r in fleet.rounds)


@pytest.mark.parametrize("name", RECIPES)
def test_our_bytes_are_those_flower_counted(name, played):
    """Net of the stated envelope of every message, within 5 %."""
    folder, said = played[0][name]
    bytes_ = compare(folder, played[1])
    assert all(
        abs(way.difference) < 0.05 and way.messages == MESSAGES[name] for way in bytes_.values()
    ), bytes_
    assert "difference" in said


def test_advice_rests_on_what_clients_say_and_asks_them_once(played):
    home, app = played[2], played[0]["fedlecc"][0].parent

    def ask(*more: str) -> Result:
        words = ["advise", str(app), "--home", str(home), "--budget", "20rounds", *more]
        return CliRunner().invoke(commands, words)

    first = ask("--json", "-o", str(app.parent / "advised.toml"))
    assert first.exception is None, (first.output, first.exception)
    advice = json.loads(first.stdout)
    recipe, settings = RECIPES["fedlecc"]
    local = run(recipe, settings=settings, seed=5, workers=1)
    assert local.labels is not None
    told = counts_of_signal(read_state(app / "measured").signal, "the fleet")
    assert np.array_equal(told.table, local.labels.counts)
    assert {"fedavg", "fed_cbs"} <= {choice["method"] for choice in advice["choices"]}
    assert resolve(load(app.parent / "advised.toml"))["data"]["clients"] == 4
    asked = len(list_runs(read_fleet(home).flower_home))
    assert "disclosed counts of 4 of 4 clients" in ask().output
    assert "Use --again" in str(ask("--allow", "probe").exception)
    assert "nothing can be said of a fleet" in str(ask("--allow", "d2d").exception)
    assert len(list_runs(read_fleet(home).flower_home)) == asked
