"""The same recipe and seed here and over Flower: the same clients every round, the same model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from fake_grid import TASK, FakeGrid, server_context

from fedskew.experiment.fleet import serve
from fedskew.experiment.local import run
from fedskew.recipe import load, override

SMALL = {
    "data.clients": 8,
    "run.rounds": 4,
    "run.clients_per_round": 4,
    "partition.use": "dirichlet",
}
RECIPES = {
    "fedavg": ("fedavg", {}),
    "fedlecc": ("fedlecc", {"local.epochs": 1, "selection.top_clusters": 2}),
    "fedlecc exact losses": ("fedlecc", {"local.epochs": 1, "selection.loss_source": "exact"}),
    "bacsa": ("bacsa", {"local.epochs": 1}),
    "sequential": ("fedavg", {"procedure.use": "sequential"}),
    "sequential d2d": ("fedavg", {"procedure.use": "sequential", "procedure.relay": "d2d"}),
    "scaffold": ("fedavg", {"aggregation.use": "scaffold"}),
    "divfl": ("divfl", {"local.epochs": 1}),
    "afls": ("afls", {}),
    "balanced chains": ("balanced_chains", {}),
    "baton": ("baton", {}),
    "baton in haste": ("baton_fast", {"procedure.haste": 0.8}),
    "clust_psi_pfl": ("clust_psi_pfl", {"local.epochs": 1}),
    "ifca": ("ifca", {"local.epochs": 1}),
    "fedsoft": ("fedsoft", {"local.epochs": 1, "procedure.centres": 2}),
    "ccvr": ("ccvr", {"signal.use": "histogram"}),
    "frozen head": ("fedbabu", {}),
    "simplex head": ("fedetf", {}),
    "logit_adjusted": ("logit_adjusted", {}),
    "global shares": (
        "bacsa",
        {"local.epochs": 1, "objective.use": "logit_adjusted", "objective.reference": "global"},
    ),
    "fedlc": ("fedlc", {}),
    "fedrs": ("fedrs", {}),
    "fedntd": ("fedntd", {}),
    "fedvls": ("fedvls", {"objective.suppression": 0.05}),
    "taught along chains": ("balanced_chains", {"objective.use": "fedntd"}),
    "with faults": ("fedavg", {"faults.dropout": 0.2, "faults.nan": 0.2, "run.min_ok": 0}),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_fleet_does_what_one_machine_does(name: str, tmp_path: Path):
    recipe, changes = RECIPES[name]
    settings = {**SMALL, **changes}
    config = {
        "recipe": recipe,
        "set": ";".join(f"{key}={value}" for key, value in settings.items()),
        "seed": 5,
        "out": str(tmp_path / "fleet"),
        "poll-seconds": 0.0,
    }
    grid = FakeGrid(config)
    for client in range(8):
        grid.join(client)
    fleet = serve(grid, server_context(config), TASK, Path("."))
    local = run(override(load(recipe), settings), seed=5, workers=1, out=tmp_path / "local")

    assert [r.chains for r in fleet.rounds] == [r.chains for r in local.rounds]
    assert len({chain for r in local.rounds for chain in r.chains}) > 1
    np.testing.assert_allclose(fleet.models, local.models, rtol=0, atol=1e-5)
    assert np.abs(local.models).max() > 0.1
    assert [r.transfers for r in fleet.rounds] == [r.transfers for r in local.rounds]
    assert [sorted(r.failures) for r in fleet.rounds] == [sorted(r.failures) for r in local.rounds]
    np.testing.assert_allclose(
        [r.accuracy for r in fleet.rounds], [r.accuracy for r in local.rounds], atol=1e-9
    )
    np.testing.assert_allclose(fleet.clients["accuracy"], local.clients["accuracy"], atol=1e-9)
    assert (tmp_path / "fleet" / "result.json").is_file()
