"""The figures of the evidence on orders: METHODS' times, and a target that was never reached is
never a number.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "evidence"


@pytest.fixture
def afls(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield import_module("afls")
    sys.modules.pop("afls", None)


def test_times_of_methods_12(afls):
    times = [afls.round_seconds(way) for way in ("parallel", "sequential", "d2d")]
    assert times == pytest.approx([1.552, 15.52, 13.036])
    assert 1 - times[2] / times[1] == pytest.approx(0.16, abs=0.001)


def test_the_time_to_the_required_accuracy(afls):
    reached = afls.figures([0, 10, 20, 30, 40, 50], [0.1, 0.5, 0.61, 0.59, 0.7, 0.7], "d2d")
    assert (reached["round_to_required"], reached["seconds_to_required"]) == (
        20,
        pytest.approx(20 * 13.036),
    )
    never = afls.figures([0, 1], [0.1, 0.2], "parallel")
    assert (never["round_to_required"], never["seconds_to_required"]) == (None, None)
    assert afls.time_text([never, never]) == ">2"
    assert afls.time_text([reached, {**never, "seconds": 15.5}]) == "261 (1 of 2 never)"


def test_the_recipes_it_plays_resolve(afls):
    from fedskew.recipe import load, override, resolve

    for recipe in ("afls", *afls.RECIPES.values()):
        assert (
            resolve(override(load(recipe), afls.settings(5, 3, 1001, 0.01)))["partition"]["size"]
            == 1000
        )


def test_the_methods_it_compares_differ_in_nothing_but_the_method(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    orders = import_module("orders")
    from fedskew.recipe import load, override, resolve

    made = [resolve(override(load(recipe), orders.SETTINGS)) for recipe in orders.METHODS]
    for table in ("data", "partition", "model", "local"):
        assert all(recipe[table] == made[0][table] for recipe in made), table
    sys.modules.pop("orders", None)
