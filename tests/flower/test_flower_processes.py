"""A SuperLink and four SuperNodes as real processes: five rounds of a parallel and of a sequential recipe, and their bytes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from real_fleet import finish, make_app, run_app

from fedskew.deploy import local_fleet
from fedskew.deploy.flower_cli import list_runs
from fedskew.deploy.traffic import compare
from fedskew.experiment import run
from fedskew.finished import Run

SMALL = {"data.clients": 4, "run.rounds": 5, "run.clients_per_round": 2, "local.epochs": 1}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    home = tmp_path_factory.mktemp("fleet") / "home"
    local_fleet.up(home, 4)
    yield home
    local_fleet.down(home)


def test_five_rounds_of_fedlecc_and_of_a_sequential_recipe(fleet, tmp_path):
    """Both at once on the same fleet; each ends with the model and the choices of the local runtime."""
    recipes = {"fedlecc": ("fedlecc", {**SMALL, "selection.top_clusters": 2}),
               "chain": ("fedavg", {**SMALL, "procedure.use": "sequential", "data.client_test": "none"})}  # fmt: skip
    messages = {"fedlecc": 4 + 5 * 2 + 4, "chain": 4 + 5 * 2}  # who are you, rounds of two, tests at the clients
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
        assert all(abs(way.difference) < 0.05 and way.messages == messages[name] for way in bytes_.values()), bytes_
        assert "difference" in said
