"""``run.device``: a clear error where there is no such device, and passes over one where there is.

No machine of ours has one: a copy of every tensor stands for the journey there and back.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import fedskew  # noqa: E402
from fedskew import recipe  # noqa: E402
from fedskew.errors import RecipeError, RunError  # noqa: E402
from fedskew.experiment import device  # noqa: E402

PLAIN = {"run.rounds": 2, "data.clients": 4, "run.clients_per_round": 2}


@pytest.fixture
def faraway(monkeypatch):
    """A device that is there, and whose tensors are other tensors; counts the journeys."""
    sent: list[str] = []

    def to(tensor, name):
        sent.append(name)
        return tensor.clone()

    monkeypatch.setattr(device, "_to", to)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return sent


def with_batch_norm():
    layers = torch.nn
    return layers.Sequential(
        layers.Flatten(), layers.Linear(64, 12), layers.BatchNorm1d(12), layers.ReLU(),
        layers.Dropout(0.2), layers.Linear(12, 10),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_said_before_anything_is_written(name, tmp_path):
    if (torch.cuda if name == "cuda" else torch.backends.mps).is_available():
        pytest.skip("there is one")
    with pytest.raises(
        RunError, match=rf"run\.device: this PyTorch .* has no {name} here\. Use cpu"
    ):
        fedskew.run("fedavg", settings={"run.device": name}, workers=1, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()
    with pytest.raises(RecipeError, match=r"'cpu' \| 'cuda' \| 'mps'"):
        fedskew.run("fedavg", settings={"run.device": "gpu"}, workers=1)


@pytest.mark.parametrize("model", [None, with_batch_norm])
def test_the_same_models_as_without_it(model, faraway):
    here = fedskew.run("fedavg", model=model, settings=PLAIN, workers=1)
    assert not faraway
    there = fedskew.run("fedavg", model=model, settings={**PLAIN, "run.device": "cuda"}, workers=1)
    assert set(faraway) == {"cuda"}
    assert np.allclose(here.models, there.models, atol=1e-5)
    assert not np.allclose(here.models, 0)
    assert list(here.state_dict()) == list(there.state_dict())


def test_who_looks_into_a_model_finds_it_in_memory(faraway):
    """Estimated label mixes and CCVR look at what reaches the output layer."""
    there = {**PLAIN, "data.clients": 10, "run.device": "cuda"}
    assert fedskew.run("ccvr", settings=there, workers=1).summary()["rounds"] >= 2
    assert fedskew.run("cba", settings=there, workers=1).summary()["rounds"] == 2


def test_it_is_part_of_a_recipes_name_only_where_it_is_not_the_processor():
    plain = recipe.resolve(recipe.load("fedavg"))
    without = {**plain, "run": {k: v for k, v in plain["run"].items() if k != "device"}}
    other = {**plain, "run": {**plain["run"], "device": "cuda"}}
    assert recipe.fingerprint(plain) == recipe.fingerprint(without) != recipe.fingerprint(other)
