"""The estimation tables: no client ever trains on an auxiliary input, and every other training
row belongs to one client.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from fedskew.data import load

FOLDER = Path(__file__).resolve().parents[2] / "evidence" / "estimation"


@pytest.fixture
def measurement(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(FOLDER))
    yield import_module("measurement")
    sys.modules.pop("measurement", None)


@pytest.mark.parametrize("split", ["Dir .5", "Dir .1", "CCDD 2", "Dir .5 uncapped"])
def test_auxiliary_rows_belong_to_nobody(measurement, split):
    digits = load("digits")
    shards = measurement.divide(digits, split, seed=1)
    kept = shards.auxiliary
    assert np.bincount(digits.y[kept]).tolist() == [10] * 10
    assert not np.isin(shards.train.order, kept).any()
    assert len(shards.train.order) + len(kept) == len(digits.y)
    assert shards.test is None


def test_a_cell_knows_more_than_nothing_and_repeats_itself(measurement):
    cell = measurement.Cell("methods", "digits", "CCDD 2", 1, 0.001, "bacsa", 1)
    first, again = (measurement.run_cell(cell, seed=0) for _ in range(2))
    assert first == again
    assert first["uniform"]["total_variation"] == pytest.approx(0.8, abs=0.01)
    assert first["bias_linear"]["total_variation"] < 0.05
