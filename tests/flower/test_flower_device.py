"""A fleet's clients train where they are: a device is refused, never ignored."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from fedskew.errors import RecipeError
from fedskew.experiment.fleet_server import _check_possible
from fedskew.recipe import load, override, resolve


def test_a_device_is_not_for_a_fleet():
    _check_possible(resolve(load("fedavg")))
    with pytest.raises(RecipeError, match=r"run\.device: 'cuda' is not for a fleet"):
        _check_possible(resolve(override(load("fedavg"), {"run.device": "cuda"})))
