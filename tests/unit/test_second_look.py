"""What a second newcomer found: bounds that say the reverse, ids that melt together, remedies that
do not help, errors that are not ours.
"""

from __future__ import annotations

import shutil

import numpy as np
import pytest

pytest.importorskip("torch")

from torch import nn
from typer.testing import CliRunner

import fedskew
from fedskew import Comparison, Run
from fedskew.accounting.targets import Reduction
from fedskew.cli import main as cli
from fedskew.compare.consequences import change_words
from fedskew.errors import FedskewError, RunFolderError

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3
SMALL = {"run.rounds": 1, "run.clients_per_round": 2, "model.use": "logistic", "local.epochs": 1}
COMMAND = ["run", "fedavg", "--set", "run.rounds=1", "--workers", "1", "--quiet"]


def play(**more):
    given = {"data": (X, Y), "clients": np.arange(60) % 3, "settings": SMALL, "workers": 1}
    options = given | more
    return fedskew.run("fedavg", **options)


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run of the command line."""
    out = tmp_path_factory.mktemp("second") / "run"
    assert invoke(*COMMAND, "--out", out).exit_code == 0
    return out


# ---------------------------------------------------------------- the verdict


@pytest.mark.parametrize(
    ("saved", "said"),
    [  # the rival never got there: at least its cost is known, so at most so much more was spent
        (Reduction(0.03, "at least"), "at least 3 % less time"),
        (Reduction(-0.34, "at least"), "at most 34 % more time"),
        (Reduction(-1.5, "at least"), "at most 2.5 times the time"),
        (Reduction(0.0, "at least"), "at most as much time"),
        # we never got there: at least our cost is known
        (Reduction(0.2, "at most"), "at most 20 % less time"),
        (Reduction(-0.2, "at most"), "at least 20 % more time"),
        (Reduction(-0.2), "20 % more time"),
    ],
)
def test_a_bound_of_what_was_saved_is_the_reverse_bound_of_what_was_spent(saved, said):
    assert change_words(saved, "time") == said


# ---------------------------------------------------------------- own splits


@pytest.mark.parametrize(
    ("ids", "kinds"),
    [
        ([float("nan"), "north", "south"] * 20, "float and str"),
        ([1, "1", 2] * 20, "int and str"),
        ([None, "north", "south"] * 20, "NoneType and str"),
        ([True, "yes"] * 30, "bool and str"),
    ],
)
def test_ids_of_several_kinds_do_not_melt_into_clients(ids, kinds):
    with pytest.raises(FedskewError, match=f"clients: .*type {kinds}. Give one whole number or"):
        play(clients=ids)


def test_texts_and_numbers_of_numpy_are_ids():
    texts = [np.str_(name) for name in ("north", "south")] * 30
    assert play(clients=texts).num_clients == 2
    assert play(clients=np.array([np.int32(0), np.int64(1)] * 30, dtype=object)).num_clients == 2


# ---------------------------------------------------------------- more clients than there are


def test_python_hears_that_fewer_clients_train_than_were_asked_for():
    with pytest.warns(UserWarning, match="clients_per_round = 9, but there are 3 clients"):
        play(clients=np.arange(60) % 3, settings={**SMALL, "run.clients_per_round": 9})


# ---------------------------------------------------------------- remedies


def test_resuming_a_complete_run_writes_its_damaged_recipe_again(folder, tmp_path):
    damaged = shutil.copytree(folder, tmp_path / "run")
    whole = (damaged / "recipe.toml").read_bytes()
    (damaged / "recipe.toml").write_bytes(whole[:-9])
    seen = invoke("show", damaged)
    assert "Run the same recipe with --resume: it is written again" in str(seen.exception)
    again = invoke(*COMMAND, "--out", damaged, "--resume")
    assert again.exit_code == 0
    assert (damaged / "recipe.toml").read_bytes() == whole
    assert Run.load(damaged).finished


def test_a_damaged_run_is_not_called_complete(folder, tmp_path):
    damaged = shutil.copytree(folder, tmp_path / "run")
    (damaged / "rounds.jsonl").write_bytes(b"")
    seen = invoke(*COMMAND, "--out", damaged, "--resume")
    assert seen.exit_code != 0
    assert "is complete" not in seen.output


def test_a_cut_run_counts_records_not_rounds(folder, tmp_path):
    damaged = shutil.copytree(folder, tmp_path / "run")  # one round: records 0 and 1
    lines = (damaged / "rounds.jsonl").read_bytes().splitlines(keepends=True)
    (damaged / "rounds.jsonl").write_bytes(lines[0])
    with pytest.raises(RunFolderError, match="holds 1 records, the finished run left 2"):
        Run.load(damaged)


def test_a_folder_that_is_not_there_is_called_so(tmp_path):
    with pytest.raises(RunFolderError, match="there is no such folder"):
        Run.load(tmp_path / "nope")


# ---------------------------------------------------------------- examples and models


def test_whole_numbers_and_a_model_for_numbers_are_explained():
    with pytest.raises(FedskewError, match=r"whole numbers: tokens[.] Give a table as floats"):
        play(data=(np.abs(X * 9).astype(int), Y))


def test_numbers_and_a_model_for_texts_are_explained():
    with pytest.raises(FedskewError, match="model transformer: reads texts"):
        play(settings={**SMALL, "model.use": "transformer"})


def test_test_labels_that_nobody_can_learn_are_refused():
    with pytest.raises(FedskewError, match=r"none of the test labels .* occurs in training"):
        play(data=(X, Y, X[:9], Y[:9] + 7))
    play(data=(X, Y, X[:9], np.r_[Y[:8], 7]))  # one that nobody can learn is somebody's question


# ---------------------------------------------------------------- errors of ours


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"out": 3}, "out: is 3, which is no path"),
        ({"resume": "yes", "out": "x"}, "resume: is 'yes'"),
        ({"resume": True}, "resume: is True, but no out="),
        ({"seed": 2**70}, "Give a whole number from 0 below"),
        ({"model": nn.Linear(4, 3)}, "model: is a Linear that is made already"),
        ({"settings": {"run": {"rounds": 1}}}, "setting run: is not of the form table.option"),
    ],
)
def test_odd_arguments_are_errors_of_ours(more, said):
    with pytest.raises(FedskewError, match=said):
        play(**more)


def test_odd_runs_to_compare_are_errors_of_ours():
    run = play()
    for odd in (run, "abc", [3], 3, [run, None]):
        with pytest.raises(FedskewError, match="comparison: "):
            Comparison.of(odd)
    for read in (Run.load, Run.read, Comparison.read):
        with pytest.raises(FedskewError, match="is 3, which is no path"):
            read(3)
    for target in ("0.8", 2, float("nan")):
        with pytest.raises(FedskewError, match="is not an accuracy"):
            Comparison.of([run]).table(target=target)
    assert Comparison.of([run]).table(target=np.float32(0.5)).target == 0.5


# ---------------------------------------------------------------- notebooks


def test_a_notebook_does_not_mix_clients_accuracy_with_that_of_a_global_model():
    few = {"partition.use": "iid", "data.clients": 4, **SMALL}
    one, several = (
        fedskew.run(name, settings=few, workers=1) for name in ("fedavg", "clust_psi_pfl")
    )
    shown = Comparison.of([one, several])._repr_html_()
    assert "clust_psi_pfl (clients&#x27; accuracy)" in shown
    assert "fedavg (clients" not in shown + one._repr_html_()
    assert "(clients&#x27; accuracy)" in several._repr_html_()


def test_a_notebook_calls_a_reference_one():
    few = {"partition.use": "iid", "data.clients": 4, **SMALL}
    runs = [fedskew.run(name, settings=few, workers=1) for name in ("clust_psi_pfl", "local_only")]
    shown = Comparison.of(runs)._repr_html_()
    assert "reference: local_only" in shown
    assert "reference: clust" not in shown
