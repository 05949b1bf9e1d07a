"""The bank that comes with the package: made from the study's results, small, and usable."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np

from fedskew.advice.bank import BASE, COSTS, read_bank
from fedskew.advice.features import Training, features_of
from fedskew.advice.nearest import IMPORTANCE
from fedskew.compare.contenders import line_up
from fedskew.evidence.playing import plugin

STUDY = Path(__file__).resolve().parents[3] / "evidence" / "bank"
FILE = Path(str(resources.files("fedskew") / "advice" / "bank.json"))


def test_it_is_what_the_results_of_the_study_give():
    assert plugin(STUDY, "ship.py:shipped")() == FILE.read_bytes(), "run evidence/bank/ship.py"


def test_it_is_small_and_complete():
    assert FILE.stat().st_size < 500_000
    bank = read_bank()
    assert BASE in bank.methods
    assert not np.isnan(bank.accuracy).any()
    assert ((bank.accuracy >= 0) & (bank.accuracy <= 1)).all()
    assert set(bank.costs) == set(COSTS)
    assert all((values >= 0).all() for values in bank.costs.values())


def test_its_methods_are_shipped_recipes_with_settings_that_exist():
    for name, entry in read_bank().methods.items():
        settings = {f"{entry.recipe}:{key}": value for key, value in entry.settings.items()}
        assert line_up(["fedavg", entry.recipe], settings, twins=True), name


def test_its_features_are_those_that_are_computed_now_and_all_count():
    now = features_of(np.array([[5, 3], [1, 7]]), Training(2, 1, 4, 0.1))
    assert list(now) == list(read_bank().feature_names)
    assert set(IMPORTANCE) == set(now)
