"""Nothing wrong without a word: own splits, clamped numbers, misspelt folders, twins."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch")

from typer.testing import CliRunner

import fedskew
from fedskew import Comparison, Run
from fedskew.cli import main as cli
from fedskew.compare.contenders import line_up
from fedskew.errors import FedskewError, RecipeError, RunFolderError
from fedskew.measure.sources import counts_of_run

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3
SMALL = {"run.rounds": 1, "run.clients_per_round": 2, "model.use": "logistic", "local.epochs": 1}


def play(**more):
    options = {"data": (X, Y), "settings": SMALL, "workers": 1} | more
    return fedskew.run("fedavg", **options)


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


# ---------------------------------------------------------------- own splits


@pytest.mark.parametrize("number", [1, 40, 59, 61, 100])
def test_client_ids_for_another_number_of_examples_are_refused(number):
    with pytest.raises(FedskewError, match=f"{number} client ids for 60 training examples"):
        play(clients=np.arange(number) % 2)


def test_text_ids_are_clients_with_names(tmp_path):
    ids = np.array(["south", "north", "west"])[np.arange(60) % 3]
    run = play(clients=ids.tolist(), out=tmp_path / "r")
    assert run.labels.clients == ["north", "south", "west"]
    assert run.num_clients == run.recipe["data"]["clients"] == 3
    numbered = play(clients=np.array([1, 0, 2])[np.arange(60) % 3])  # the same split
    assert (run.models == numbered.models).all()
    assert counts_of_run(tmp_path / "r")[0].clients == ["north", "south", "west"]


@pytest.mark.parametrize(
    "ids", [[[0, 1]] * 30, [0.5] * 60, [None] * 60, "north", 3, [True] * 60, [-2] * 60, [-1] * 60]
)
def test_odd_client_ids_are_errors_of_ours(ids):
    with pytest.raises(FedskewError, match="clients"):
        play(clients=ids)


def test_the_record_of_an_own_split_says_so(tmp_path):
    run = play(clients=np.arange(60) % 4, out=tmp_path / "r")
    for recipe in (run.recipe, Run.read(tmp_path / "r").recipe):
        assert recipe["partition"]["use"] == "custom"
        assert recipe["data"]["use"] == "custom"
        assert recipe["data"]["clients"] == 4
        assert "alpha" not in recipe["partition"]
    facts = json.loads((tmp_path / "r" / "run.json").read_text())
    assert facts["data"] == {"examples": 60, "test_examples": 0, "shape": [4], "classes": 3}
    # another split is another run
    with pytest.raises(RunFolderError, match="another recipe"):
        play(clients=np.arange(60) % 5, out=tmp_path / "r", resume=True)


def test_an_own_model_is_recorded_by_its_name(tmp_path):
    from torch import nn

    def my_net():
        return nn.Linear(4, 3)

    settings = {key: value for key, value in SMALL.items() if key != "model.use"}
    run = play(model=my_net, settings=settings, clients=np.arange(60) % 2, out=tmp_path / "r")
    assert run.facts["model"].endswith("my_net")


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"clients": np.arange(60) % 2}, {"partition.alpha": 0.1}),
        ({"clients": np.arange(60) % 2}, {"data.clients": 7}),
        ({"data": (X, Y)}, {"data.use": "mnist"}),
        ({"model": lambda: None}, {"model.use": "mlp"}),
    ],
)
def test_settings_that_would_change_nothing_are_refused(given, setting):
    with pytest.raises(RecipeError, match="would change nothing"):
        fedskew.run("fedavg", settings=setting, workers=1, **given)


def test_own_ids_follow_their_rows_when_the_server_keeps_some():
    """data.auxiliary takes rows away before clients get theirs."""
    ids = np.arange(60) % 2
    run = play(clients=ids, settings={**SMALL, "data.auxiliary": 6})
    own = {c: np.bincount(Y[ids == c], minlength=3) for c in (0, 1)}
    for client, counts in enumerate(run.labels.counts):
        assert (counts <= own[client]).all()


# ---------------------------------------------------------------- said, not swallowed


def test_more_clients_a_round_than_there_are_is_said(tmp_path):
    with pytest.warns(UserWarning, match="there are 4 clients"):
        run = play(clients=np.arange(60) % 4, settings={**SMALL, "run.clients_per_round": 10},
                   out=tmp_path / "r")  # fmt: skip
    (note,) = Run.read(tmp_path / "r").notes
    assert "run.clients_per_round = 10, but there are 4 clients" in note
    assert note in Comparison.of([run]).table().notes
    settings = ("data.clients=3", "run.rounds=1", "run.clients_per_round=9")
    done = invoke("run", "fedavg", *(part for s in settings for part in ("--set", s)),
                  "--out", tmp_path / "c", "--workers", "1", "--quiet")  # fmt: skip
    assert "there are 3 clients" in done.output
    assert play(clients=np.arange(60) % 4).notes == []


def test_resume_needs_something_to_resume(tmp_path):
    done = invoke("run", "fedavg", "--resume", "--out", tmp_path / "TYPO")
    assert isinstance(done.exception, RunFolderError)
    assert "there is no run to go on with" in str(done.exception)
    assert not (tmp_path / "TYPO").exists()
    with pytest.raises(RunFolderError, match="no run to go on with"):
        play(clients=np.arange(60) % 2, out=tmp_path / "TYPO", resume=True)


def test_a_method_given_twice_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="'fedavg' is given twice"):
        line_up(["fedavg", "fedlecc", "fedavg"])
    (tmp_path / "mine.toml").write_text("extends = 'fedavg'\nname = 'mine'\n")
    with pytest.raises(RecipeError, match="'fedavg' and 'mine' are the same method"):
        line_up(["fedavg", str(tmp_path / "mine.toml")])


def test_too_many_workers_are_capped_with_a_word(tmp_path, monkeypatch):
    from fedskew.runtime.local import tasks

    monkeypatch.setattr(tasks, "usable_cores", lambda: 1)
    rest = ("--set", "run.rounds=0", "--quiet", "--out", tmp_path / "r")
    assert "1000 workers for 1 cores: 16 are started" in invoke(
        "run", "fedavg", "--workers", "1000", *rest
    ).output.replace("\n", " ")


def test_too_many_workers_are_capped_in_python():
    from fedskew.experiment.local import check_arguments

    with pytest.warns(UserWarning, match="1000 workers"):
        assert check_arguments(0, 1000, None, None)[1] < 1000


# ---------------------------------------------------------------- Python arguments


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1}, {"seed": "0"}, {"seed": 0.5}, {"seed": True}, {"seed": 2**70},
        {"workers": "2"}, {"workers": -1}, {"workers": None},
        {"on_round": 3}, {"model": 3}, {"settings": 3}, {"settings": {3: 1}},
        {"settings": {"local.lr": object()}},
        {"data": (X, Y, X)}, {"data": (X,)}, {"data": X}, {"data": 3}, {"data": "mnist"},
        {"data": (X, Y, X, Y, X)}, {"data": (X, Y[:5])}, {"data": (X, None)}, {"data": ()},
        {"data": (["a"], ["b"])}, {"data": {"x": X, "z": Y}},
    ],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_wrong_arguments_are_errors_of_ours(wrong):
    (name,) = wrong
    with pytest.raises(FedskewError, match=r"^(settings|local.lr)" if name == "settings" else name):
        play(clients=np.arange(60) % 2, **wrong)


def test_unknown_names_of_figures_and_tables_are_errors_of_ours():
    from fedskew.report.figures.paper import draw_curves

    run = play(clients=np.arange(60) % 2)
    for wrong in (
        lambda: run.rows("nope"),
        lambda: run.spent("nope"),
        lambda: run.to_target("high"),
        lambda: run.to_target(7.0),
        lambda: Comparison.of([run]).table(budget="nope"),
        lambda: Comparison.of([run]).rows("nope"),
        lambda: draw_curves(Comparison.of([run]), x="nope"),
        lambda: Comparison.of([run]).against("nope"),
        lambda: run.state_dict(9),
    ):
        with pytest.raises(FedskewError):
            wrong()


def test_numbers_of_numpy_are_numbers():
    settings = {**SMALL, "local.lr": np.float32(0.1), "run.rounds": np.int64(1)}
    run = play(clients=np.arange(60) % 2, settings=settings, seed=np.int64(3))
    assert run.recipe["local"]["lr"] == pytest.approx(0.1)
    assert type(run.recipe["run"]["rounds"]) is int
    own = fedskew.recipe.resolve(
        {"local": {"lr": np.float64(0.2)}, "data": {"clients": np.int32(5)}}
    )
    assert (own["local"]["lr"], own["data"]["clients"]) == (0.2, 5)
