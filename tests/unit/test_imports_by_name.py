"""Code is imported when the user names it, and never because a folder or a message does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
from typer.testing import CliRunner

import fedskew
from fedskew import Comparison, Run, recipe
from fedskew.cli import main as cli
from fedskew.errors import RecipeError, RunError
from fedskew.foreign import ForeignName
from fedskew.objective import loss_for
from fedskew.records import no_none
from fedskew.types import LocalJob

SOURCE = Path(fedskew.__file__).parents[1]
MARK = "import pathlib\npathlib.Path({mark!r}).write_text('ran')\n"
RULE = MARK + (
    "def choose(view, rng):\n    return list(range(view.size))[: view.budget]\n"
    "def deal(pool, clients, rng):\n    raise SystemError('dealt')\n"
)


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A folder that came from elsewhere: a run whose recipe names code that lies beside it."""
    import numpy as np

    from fedskew.records import Labels, RunFolder
    from fedskew.types import Cost, Layout, RoundRecord

    folder, mark = tmp_path / "came", tmp_path / "mark"
    raw = {"name": "evil", "data": {"clients": 2}, "run": {"rounds": 1, "clients_per_round": 1}}
    resolved = recipe.resolve(raw)
    for stage in ("selection", "partition", "model", "procedure", "aggregation", "objective"):
        resolved[stage] = {"use": f"evil_{stage}:choose"}
    out = RunFolder(folder, resolved, 0)
    out.begin({})
    out.keep_labels(Labels(np.array([[3, 1], [1, 4]]), ["a", "b"]))
    out.append(RoundRecord(0, (), {}, {}, (), 0.1, 1.0, 0.1, {}, Cost(0.0, 0.0)))
    out.append(RoundRecord(1, (), {}, {}, (), 0.2, 1.0, 0.1, {}, Cost(0.0, 0.0)))
    layout = Layout.of([("weight", (2, 2), "weight")])
    columns = {"client": [0, 1], "examples": [4, 5], "times_selected": [0, 0]}
    out.finish(np.zeros((1, 4), np.float32), layout, columns, {})
    out.close()
    for stage in ("selection", "partition", "model", "procedure", "aggregation", "objective"):
        (folder / f"evil_{stage}.py").write_text(RULE.format(mark=str(mark)))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))  # the worst case: it could be imported
    return folder, mark


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def test_reading_a_folder_imports_nothing_of_it(hostile, tmp_path):
    folder, mark = hostile
    run = Run.read(folder)
    assert run.summary()["name"] == "evil"
    Comparison.read(folder).table()
    for arguments in (
        ("measure", "."),
        ("report", ".", "-o", tmp_path / "r.html"),
        ("export", ".", "--tables", tmp_path / "t"),
    ):
        done = invoke(*arguments)
        assert done.exit_code == 0, (arguments, done.output, done.exception)
    (folder / "labels.json").unlink()  # now it has to be dealt again
    done = invoke("measure", ".")
    assert isinstance(done.exception, RecipeError)
    assert "is not imported" in str(done.exception)
    assert not mark.exists()


def test_training_a_run_further_imports_nothing_of_its_folder(hostile):
    from fedskew.experiment.references import with_references

    folder, mark = hostile
    with pytest.raises(RecipeError, match="is not imported"):
        with_references(Run.read(folder))
    assert not mark.exists()


def test_trust_is_what_imports_it(hostile):
    folder, mark = hostile
    (folder / "labels.json").unlink()
    done = invoke("measure", ".", "--trust")
    assert mark.exists()
    assert done.exit_code != 0  # that partition deals nothing


def test_a_recipe_the_user_names_is_imported(hostile, tmp_path):
    _, mark = hostile
    own = {"name": "mine", "selection": {"use": "my_rules:choose"}, "run": {"rounds": 1}}
    (tmp_path / "mine.toml").write_text(tomli_w.dumps(own))
    (tmp_path / "my_rules.py").write_text(RULE.format(mark=str(mark)))
    done = invoke("run", tmp_path / "mine.toml", "--out", tmp_path / "out", "--workers", "1")
    assert (done.exit_code, mark.exists()) == (0, True), done.exception


def test_a_recipe_without_code_of_its_own_opens_no_folder(tmp_path, monkeypatch):
    """cwd and the recipe's folder are searched only if the recipe needs them."""
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert invoke("run", "fedavg", "--set", "run.rounds=0", "--set", "nope.x=1").exit_code != 0
    assert sys.path == before


def test_a_recorded_recipe_does_not_follow_extends(tmp_path):
    (tmp_path / "secret.toml").write_text("[run]\nrounds = 7\n")
    resolved = recipe.resolve(recipe.load("fedavg"))
    raw = {**no_none(resolved), "extends": str(tmp_path / "secret.toml")}
    del raw["run"]
    (tmp_path / "recipe.toml").write_text(tomli_w.dumps(raw))
    assert recipe.read_recorded(tmp_path / "recipe.toml")["run"]["rounds"] == 20


# ---------------------------------------------------------------- names from messages


@pytest.mark.parametrize("stage", ["selection", "model", "partition", "objective"])
def test_a_foreign_name_of_ours_is_found_and_any_other_is_not(stage):
    known = next(iter(recipe.REGISTRIES[stage]))
    assert recipe.find(stage, ForeignName(known)) is recipe.REGISTRIES[stage][known]
    with pytest.raises(RecipeError, match="is not imported"):
        recipe.find(stage, ForeignName("os:system"))


def test_a_job_from_a_message_names_no_code():
    with pytest.raises(RunError, match="code that a message names"):
        loss_for(LocalJob(objective=ForeignName("subprocess:run")), [1, 2])


def test_foreign_names_survive_what_recipes_go_through():
    """Merging, overriding other tables and copying between processes do not launder them."""
    import pickle

    raw = {"name": "x", "selection": {"use": ForeignName("a:b")}}
    moved = pickle.loads(pickle.dumps(recipe.override(recipe.merge(raw, {}), {"local.lr": 1.0})))
    with pytest.raises(RecipeError, match="is not imported"):
        recipe.resolve(moved)
    assert json.loads(json.dumps(raw)) == {"name": "x", "selection": {"use": "a:b"}}


# ---------------------------------------------------------------- python -m in a hostile folder


def test_python_m_in_a_hostile_folder_imports_none_of_its_modules(tmp_path):
    mark = tmp_path / "mark"
    names = {"numpy", "typing", "json", "rich", "typer", "scipy", "torch", "dataclasses", "mlflow"}
    names |= {"difflib", "pathlib", "tomllib", "__future__", "platformdirs", "sitecustomize"}
    for name in names:
        (tmp_path / f"{name}.py").write_text(MARK.format(mark=f"{mark}-{name}"))
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-m", "fedskew", "list", "selection", "--json"],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "uniform" in json.loads(done.stdout)["selection"]
    assert [path.name for path in tmp_path.glob("mark*")] == []


def test_workers_do_not_look_into_the_current_folder(tmp_path):
    """They are started by -m too; their path is that of the parent."""
    pytest.importorskip("torch")
    mark = tmp_path / "mark"
    for name in ("torch", "numpy", "cloudpickle", "dataclasses", "typing"):
        (tmp_path / f"{name}.py").write_text(MARK.format(mark=f"{mark}-{name}"))
    code = "import fedskew; fedskew.run('fedavg', settings={'run.rounds': 1}, workers=2)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.glob("mark*")] == []
