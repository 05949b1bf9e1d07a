"""The same app on Flower's simulation engine (Ray): the same model as on one machine."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
pytest.importorskip("ray", reason="Flower's simulation engine is not installed")
from real_fleet import finish, make_app, run_app

from fedskew.deploy import local_fleet
from fedskew.experiment.local import run
from fedskew.experiment.run import Run


def test_an_app_on_ray(tmp_path):
    settings = {
        "data.clients": 6,
        "run.rounds": 3,
        "run.clients_per_round": 3,
        "selection.top_clusters": 2,
        "local.epochs": 1,
    }
    app = make_app(tmp_path / "app", "fedlecc", settings)
    local_fleet.up(tmp_path / "home", 6, simulation=True)
    try:
        finish(run_app(tmp_path / "home", app), app)
    finally:
        local_fleet.down(tmp_path / "home")
    played, local = Run.load(app / "run"), run("fedlecc", settings=settings, seed=5, workers=1)
    assert [r.chains for r in played.rounds] == [r.chains for r in local.rounds]
    np.testing.assert_allclose(played.models, local.models, rtol=0, atol=1e-5)
    assert all(np.isfinite(played.clients["accuracy"]))
