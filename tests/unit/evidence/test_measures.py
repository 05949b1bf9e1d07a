"""The studies' own measurements: what they must hold whatever the numbers are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedskew.evidence.cells import Cell, cells_of
from fedskew.evidence.playing import plugin
from fedskew.evidence.study import read_study
from fedskew.experiment.world import dataset_of, shards_of

EVIDENCE = Path(__file__).resolve().parents[3] / "evidence"


def cells(name: str, scale: str | None = None, **labels: str) -> list[Cell]:
    found = cells_of(read_study(EVIDENCE / name, scale))
    return [c for c in found if all(c.labels.get(axis) == label for axis, label in labels.items())]


@pytest.mark.parametrize("split", ["Dir .5", "Dir .1", "CCDD 2", "Dir .5 uncapped"])
def test_estimation_auxiliary_rows_belong_to_nobody(split):
    cell = cells("estimation", data="digits", split=split)[0]
    digits = dataset_of(cell.recipe)
    shards = shards_of(cell.recipe, digits, seed=1)
    kept = shards.auxiliary
    assert np.bincount(digits.y[kept]).tolist() == [10] * 10
    assert not np.isin(shards.train.order, kept).any()
    assert len(shards.train.order) + len(kept) == len(digits.y)
    assert shards.test is None


def test_estimation_knows_more_than_nothing_and_repeats_itself():
    pytest.importorskip("torch")
    (cell, *_) = cells(
        "estimation", data="digits", split="CCDD 2", probe="E=1 η=0.001", start="bacsa"
    )
    probe = plugin(cell.folder, cell.grid.measure)
    first = probe(cell)
    assert first == probe(cell)
    errors = {row["of"]["estimator"]: row["total_variation"] for row in first}
    assert errors["uniform"] == pytest.approx(0.8, abs=0.01)
    assert errors["bias-linear"] < 0.05


def test_afls_times_of_a_round_and_what_it_chooses():
    # T_c = 1, T_m = 0.276, ten devices: paper 003, eqs 9 to 11
    found = {
        cell.labels["procedure"]: plugin(cell.folder, cell.grid.measure)(cell)
        for cell in cells("afls", "smoke", grid="choice")
    }
    times = [found[name]["round_seconds"] for name in ("FedTrA", "FedSeQ", "FedSeQ-D2D")]
    assert times == pytest.approx([1.552, 15.52, 13.036])
    assert 1 - times[2] / times[1] == pytest.approx(0.16, abs=0.001)
    assert {name: row["chosen"] for name, row in found.items()} == {
        "FedTrA": 0, "FedSeQ": 0, "FedSeQ-D2D": 1,
    }  # fmt: skip
    assert found["FedTrA"]["omega"] == pytest.approx(8.9, abs=0.05)


def test_orders_compares_methods_that_differ_in_nothing_but_the_method():
    made = [cell.recipe for cell in cells("orders")]
    for table in ("data", "partition", "model", "local", "devices"):
        assert all(recipe[table] == made[0][table] for recipe in made), table


def test_personal_gives_all_methods_one_budget():
    for cell in cells("personal"):
        local, run = cell.recipe["local"], cell.recipe["run"]
        assert (local["optimizer"], local["epochs"], local["lr"]) == ("adam", 5, 0.001)
        assert (run["rounds"], run["clients_per_round"]) == (40, 50)


def test_participation_estimates_are_as_noisy_as_said():
    (cell, *_) = cells("participation", "smoke", rule="BACSA")
    world = plugin(cell.folder, "measure.py:NoisyClients")(0, 20, 0.01, 0.02)
    first = np.zeros(50, np.float32)
    moved = np.array([world.reply(c, r, first).params[-10:] for c in range(20) for r in range(50)])
    shares = moved / (0.01 * 3) + 0.1
    truth = np.repeat(world.shares, 50, axis=0)
    assert (shares - truth).std() == pytest.approx(0.02, rel=0.05)
    assert (world.shares > 0).sum(axis=1).tolist() == [2] * 20
