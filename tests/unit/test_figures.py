"""One run, one set of figures: `run`, `compare` and the report show the same numbers."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch")

from typer.testing import CliRunner

from fedskew import Comparison, Run, run
from fedskew.cli import main as cli
from fedskew.records import read_json

SMALL = {"run.rounds": 3, "model.use": "logistic", "data.clients": 12}


@pytest.fixture(scope="module")
def fedavg(tmp_path_factory):
    out = tmp_path_factory.mktemp("fedavg") / "run"
    return run("fedavg", settings=SMALL, workers=1, out=out)


@pytest.fixture(scope="module")
def personal(tmp_path_factory):
    """One model per cluster: there is no global accuracy after round 0."""
    out = tmp_path_factory.mktemp("personal") / "run"
    settings = {**SMALL, "run.rounds": 4, "clustering.count": 3}
    return run("clust_psi_pfl", settings=settings, workers=1, out=out)


def compared(result, metric, **options):
    return Comparison.of([result]).table(**options).rows[0].values[metric][result.seed]


# ---------------------------------------------------------------- final, last


def test_run_and_compare_mean_the_same_by_final_accuracy(fedavg):
    accuracies = [record.accuracy for record in fedavg.rounds]
    summary = fedavg.summary()
    assert summary["final_accuracy"] == pytest.approx(np.mean(accuracies[1:]), abs=1e-12)
    assert summary["final_accuracy"] == compared(fedavg, "final")
    assert summary["last_accuracy"] == accuracies[-1] != summary["final_accuracy"]
    assert summary["best_accuracy"] == compared(fedavg, "best") == max(accuracies)
    assert summary["last_loss"] == fedavg.rounds[-1].test_loss
    assert "last5_accuracy" not in summary


def test_the_untrained_model_counts_only_where_nothing_else_was_tested():
    settings = {**SMALL, "run.rounds": 0}
    result = run("fedavg", settings=settings, workers=1)
    assert result.summary()["final_accuracy"] == result.rounds[0].accuracy
    assert compared(result, "final") == result.rounds[0].accuracy


def test_rounds_that_were_not_tested_are_not_in_the_last_five():
    settings = {**SMALL, "run.rounds": 6, "run.evaluate_every": 4}
    result = run("fedavg", settings=settings, workers=1)
    tested = [record.accuracy for record in result.rounds if record.round in (4, 6)]
    assert result.summary()["final_accuracy"] == pytest.approx(np.mean(tested), abs=1e-12)


def test_the_command_line_says_both(fedavg):
    shown = CliRunner().invoke(
        cli.app, ["run", str(fedavg.folder / "recipe.toml"), "--out", str(fedavg.folder)]
    )
    rows = dict(line.split("  ", 1) for line in shown.stdout.splitlines())
    assert float(rows["final accuracy"]) == pytest.approx(
        fedavg.summary()["final_accuracy"], abs=1e-4
    )
    assert float(rows["last round"]) == pytest.approx(fedavg.rounds[-1].accuracy, abs=1e-4)


# ---------------------------------------------------------------- several models


def test_a_personalised_run_reaches_targets_with_its_clients_accuracy(personal):
    target = min(accuracy for _, accuracy in personal.client_evaluations) - 1e-9
    reached = personal.to_target(target)
    assert not reached.censored
    assert reached.rounds == 1
    assert reached.rounds == compared(personal, "rounds_to", target=target)
    assert reached.bytes == compared(personal, "bytes_to", target=target)
    assert reached.seconds == compared(personal, "time_to", target=target)
    shown = CliRunner().invoke(
        cli.app,
        ["run", str(personal.folder / "recipe.toml"), "--out", str(personal.folder), "--json",
         "--target", str(target)],
    )  # fmt: skip
    assert json.loads(shown.stdout)["to_target"]["rounds"] == 1


def test_a_method_that_splits_up_later_has_no_global_accuracy_in_the_end():
    """CFL begins with one model: what that scored before the split is not its final accuracy."""
    settings = {
        **SMALL, "run.rounds": 4, "run.clients_per_round": 12, "procedure.min_round": 2,
        "procedure.eps_mode": "absolute", "procedure.eps1": 100.0, "procedure.eps2": 0.0,
        "procedure.gamma": 0.0,
    }  # fmt: skip
    result = run("cfl", settings=settings, workers=1)
    assert not math.isnan(result.rounds[1].accuracy)
    assert math.isnan(result.rounds[-1].accuracy)
    assert math.isnan(result.summary()["final_accuracy"])
    own = [record.client_accuracy for record in result.rounds if record.client_accuracy >= 0]
    assert compared(result, "final") == pytest.approx(np.mean(own[-5:]), abs=1e-12)
    assert not Comparison.of([result]).table().rows[0].central


# ---------------------------------------------------------------- one record


def test_a_run_read_from_its_folder_has_the_figures_it_was_written_with(fedavg):
    again = Run.load(fedavg.folder)
    written = read_json(fedavg.folder / "result.json")
    assert set(written.pop("sums")) > {"rounds.jsonl", "final.safetensors", "clients.json"}
    # JSON has six digits of the wall time, as rounds.jsonl does
    assert again.summary() == {**fedavg.summary(), "seconds": again.summary()["seconds"]}
    assert {**written, "seconds": 0} == {**again.summary(), "seconds": 0}
    assert np.array_equal(again.models, fedavg.models)


def test_reading_a_folder_needs_neither_torch_nor_the_model(fedavg, tmp_path):
    """Every file but the model is copied; torch cannot be imported."""
    for path in fedavg.folder.iterdir():
        if path.name not in ("final.safetensors", "checkpoint.safetensors"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from fedskew import Comparison, Run\n"
        f"run = Run.load({str(tmp_path)!r})\n"
        "print(Comparison.of([run]).table().rows[0].values['final'][0], run.to_target(0.1).rounds)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[0]) == fedavg.summary()["final_accuracy"]


def test_a_run_from_memory_and_one_from_disk_can_be_compared(fedavg):
    """A recipe on disk has no None and no tuple: that is no other federation, no other method."""
    other = run("fedavg", settings={**SMALL, "local.lr": 0.3}, workers=1)
    table = Comparison.of([other, Run.load(fedavg.folder)]).table()
    assert len(table.rows) == 2
    again = run("fedavg", settings=SMALL, workers=1, seed=1)
    assert len(Comparison.of([again, Run.load(fedavg.folder)]).table().rows) == 1


def test_methods_keep_the_names_a_sweep_gave_them(tmp_path):
    (tmp_path / "sweep.toml").write_text(
        'extends = "fedavg"\nname = "sweep"\n[sweep]\n"local.lr" = [0.1, 0.2]\n'
    )
    arguments = ["compare", str(tmp_path / "sweep.toml"), "--seeds", "0", "--json", "--quiet"]
    settings = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    shown = CliRunner().invoke(cli.app, [*arguments, *settings, "--out", str(tmp_path / "o")])
    labels = {row["recipe"] for row in json.loads(shown.stdout)["scores"]}
    assert labels == {"sweep local.lr=0.1", "sweep local.lr=0.2"}
