"""Every recipe that comes with the package loads, resolves to itself and plays two rounds on scripted clients."""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.devices import Devices, draw_population
from fedskew.federation import run, settle
from fedskew.recipe import load, method_of, override, resolve, shipped
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import Layout

LAYOUT = Layout.of([("body", (8,), "weight"), ("head.weight", (10, 4), "weight"), ("head.bias", (10,), "weight")])


@pytest.mark.parametrize("name", sorted(shipped()))
def test_recipe_plays(name):
    raw = load(name)
    assert raw["name"] == name
    assert raw["description"]
    assert raw["citation"]
    resolved = resolve(override(raw, {"run.rounds": 2}))
    assert resolve(resolved) == resolved
    counts = np.random.default_rng(0).integers(1, 30, size=(resolved["data"]["clients"], 10))
    means = draw_population(counts.sum(axis=1), Devices(**resolved["devices"]), 0)
    runtime = ScriptedRuntime(counts, layout=LAYOUT, population=means)
    records = [record for _, record in run(settle(method_of(resolved), runtime, 0))]
    assert [record.round for record in records] == [0, 1, 2]
    assert all(record.loss for record in records[1:])
