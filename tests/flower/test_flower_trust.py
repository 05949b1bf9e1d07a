"""At a node only the app that was approved names code: no run configuration, no message."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from fake_grid import FakeGrid

from fedskew.errors import RecipeError
from fedskew.experiment.fleet import read_settings
from fedskew.runtime.flower.exchange import Letter, exchange
from fedskew.runtime.flower.records import Note
from fedskew.types import LocalJob

EVIL = (
    "import pathlib\npathlib.Path({mark!r}).write_text('ran')\n"
    "def f(*a, **k):\n    raise Exception\n"
)


@pytest.fixture
def mark(tmp_path, monkeypatch):
    """An importable module that leaves a mark; its name is new every time."""
    mark = tmp_path / "mark"
    (tmp_path / "evil_module.py").write_text(EVIL.format(mark=str(mark)))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield mark
    sys.modules.pop("evil_module", None)


@pytest.mark.parametrize("stage", ["selection", "objective", "model", "partition", "procedure"])
def test_a_run_configuration_names_no_code(stage, mark):
    config = {"recipe": "fedavg", "set": f"{stage}.use=evil_module:f"}
    with pytest.raises(RecipeError, match="is not imported"):
        read_settings(config, Path())
    assert not mark.exists()


def test_the_recipe_of_the_app_does(mark, tmp_path):
    (tmp_path / "recipe.toml").write_text("[selection]\nuse = 'evil_module:f'\n")
    read_settings({"recipe": "recipe.toml"}, tmp_path)
    assert mark.exists()


@pytest.mark.parametrize("name", ["/etc/hostname", "../other.toml", "../app2/recipe.toml"])
def test_a_run_configuration_reads_no_file_outside_the_app(name, tmp_path):
    app = tmp_path / "app"
    (tmp_path / "app2").mkdir()
    app.mkdir()
    for path in (tmp_path / "other.toml", tmp_path / "app2" / "recipe.toml"):
        path.write_text("[run]\nrounds = 3\n")
    with pytest.raises(RecipeError, match="no file of the app"):
        read_settings({"recipe": name}, app)


def test_a_message_names_no_code(mark):
    grid = FakeGrid({"recipe": "fedavg", "set": "data.clients=4", "seed": 3})
    grid.join(0)
    asked = Letter(1000, "query.hello", Note("hello", {"model": True}))
    hello = exchange(grid, [asked], deadline_seconds=0.01)[0]
    for use, works in (("evil_module:f", False), ("fedrs", True)):
        values = {"job": {**asdict(LocalJob()), "objective": use}, "seed": "1", "round": 1}
        arrays = {"model": np.zeros(2410, np.float32)}
        note = Note("train", {"client": 0, **values}, arrays, hello.note.layout)
        found = exchange(grid, [Letter(1000, "train", note)], deadline_seconds=5.0)[0]
        assert (found.note is not None) is works, found
    assert not mark.exists()
