"""The command line as a person meets it: results, JSON, and one line with code 2 for mistakes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from typer.testing import CliRunner

from fedskew import data
from fedskew.cli import main as cli
from fedskew.errors import FedskewError

runner = CliRunner()
SMALL = ["--set", "run.rounds=2", "--workers", "1", "--quiet"]


def fedskew(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedskew", *arguments], capture_output=True, text=True, cwd=cwd
    )


def error_of(*arguments: str) -> str:
    """The error a command ends with, raised in this process to save the start of another one."""
    result = runner.invoke(cli.app, list(arguments))
    assert isinstance(result.exception, FedskewError), (result.output, result.exception)
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_json_has_what_is_promised(tmp_path):
    done = fedskew("run", "fedavg", *SMALL, "--json", "--out", str(tmp_path / "r"))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    promised = [
        "final_accuracy",
        "best_accuracy",
        "final_loss",
        "rounds",
        "bytes_down",
        "bytes_up",
        "seconds",
        "failures",
        "out",
    ]
    assert set(promised) <= set(result)
    assert result["rounds"] == 2
    assert result["bytes_down"] == result["bytes_up"] == 2 * 5 * 2410 * 4
    assert result["out"] == str(tmp_path / "r")


def test_an_error_is_one_line_and_exit_code_2(tmp_path):
    done = fedskew("run", "fedavgg", cwd=tmp_path)
    assert done.returncode == 2
    assert (
        done.stderr
        == "error RecipeError: recipe: no recipe or file called 'fedavgg'. Did you mean 'fedavg'?\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "local.lrr=1"], "Did you mean 'lr'?"),
        (["--set", "local.lr"], "has no '='"),
        (["--set", "selection.use=unifrom"], "Did you mean 'uniform'?"),
        (["--set", "data.use=digit"], "digits"),
        (["--set", "data.clients=100000"], "100000"),
        (["--set", "partition.alpha=0.0001", "--set", "partition.max_tries=5"], "partition"),
        (["--set", "model.use=cnn_bacsa"], "model"),
        (["--seeds", "3-1"], "names no seeds"),
        (["--seeds", "x"], "not a list of seeds"),
        (["--seeds", "0-1", "--seed", "4"], "together"),
        (["--set", "faults.nan=7"], "not a probability"),
    ],
)
def test_bad_input(tmp_path, arguments, message):
    assert message in error_of("run", "fedavg", *SMALL, "--out", str(tmp_path / "r"), *arguments)


def test_existing_results_are_left_untouched(tmp_path):
    out = str(tmp_path / "r")
    assert runner.invoke(cli.app, ["run", "fedavg", *SMALL, "--out", out]).exit_code == 0
    before = {p.name: p.read_bytes() for p in Path(out).iterdir()}
    assert "another recipe or seed" in error_of(
        "run", "fedavg", *SMALL, "--out", out, "--seed", "3"
    )
    assert "another recipe or seed" in error_of(
        "run", "fedavg", *SMALL, "--out", out, "--set", "local.lr=0.3", "--resume"
    )
    assert {p.name: p.read_bytes() for p in Path(out).iterdir()} == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder(tmp_path):
    tmp_path.chmod(0o500)
    assert "Permission denied" in error_of("run", "fedavg", *SMALL, "--out", str(tmp_path / "r"))


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "f").write_text("mine")
    assert "Not a directory" in error_of(
        "run", "fedavg", *SMALL, "--out", str(tmp_path / "f" / "r")
    )
    assert (tmp_path / "f").read_text() == "mine"


def test_seeds_and_sweeps_share_the_cores(tmp_path):
    recipe = tmp_path / "sweep.toml"
    recipe.write_text(
        'extends = "fedavg"\nname = "sweep"\n[run]\nrounds = 2\n[sweep]\n"local.lr" = [0.1, 0.2]\n'
    )
    done = fedskew(
        "run",
        str(recipe),
        "--seeds",
        "0-1",
        "--out",
        str(tmp_path / "out"),
        "--json",
        "--quiet",
        "--workers",
        "2",
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert [(r["seed"], r["rounds"]) for r in results] == [(0, 2), (1, 2), (0, 2), (1, 2)]
    assert len({r["final_loss"] for r in results}) == 4
    alone = fedskew(
        "run", "fedavg", *SMALL, "--json", "--seed", "1", "--out", str(tmp_path / "alone")
    )
    assert json.loads(alone.stdout)["final_loss"] == results[1]["final_loss"]


def test_an_outside_rule_needs_no_registration(tmp_path):
    (tmp_path / "my_rules.py").write_text(
        "import numpy as np\n"
        "def lowest_ids(view, rng, *, skip: int = 0):\n"
        "    return np.flatnonzero(view.available)[skip:skip + view.budget]\n"
    )
    rule = ["--set", "selection.use=my_rules:lowest_ids", "--set", "selection.skip=2"]
    done = fedskew("run", "fedavg", *SMALL, *rule, "--out", "r", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    last = json.loads((tmp_path / "r" / "rounds.jsonl").read_text().splitlines()[-1])
    assert [clients for _, clients in last["chains"]] == [[2], [3], [4], [5], [6]]
    wrong = fedskew(
        "run",
        "fedavg",
        *SMALL,
        "--set",
        "selection.use=my_rules:lowest_ids",
        "--set",
        "selection.skipp=1",
        cwd=tmp_path,
    )
    assert wrong.returncode == 2
    assert "Did you mean 'skip'?" in wrong.stderr


def test_list_shows_every_entry_with_its_options():
    done = runner.invoke(cli.app, ["list", "--json"])
    assert done.exit_code == 0, done.exception
    content = json.loads(done.stdout)
    assert content["partition"]["dirichlet"]["options"]["alpha"] == "float = 0.3"
    assert (
        content["aggregation"]["mean"]["options"]["weights"]
        == "'examples' | 'uniform' = 'examples'"
    )
    assert "McMahan" in content["recipes"]["fedavg"]["citation"]
    assert all(entry["citation"] for entry in content["selection"].values())
    assert content["selection"]["fedlecc"]["citation"].endswith(
        "arXiv 2603.08911, 2026 (paper 000), Algorithm 1"
    )
    assert all(entry["what"] for stage in content.values() for entry in stage.values())
    assert "Did you mean 'selection'?" in error_of("list", "selektion")


def test_data_list_and_show():
    listed = json.loads(runner.invoke(cli.app, ["data", "list", "--json"]).stdout)
    assert {
        "digits",
        "mnist",
        "fmnist",
        "cifar10",
        "nih_labels",
        "acsincome",
        "sent140",
        "amazon",
    } <= set(listed)
    shown = json.loads(runner.invoke(cli.app, ["data", "show", "digits", "--json"]).stdout)
    assert "1797" in json.dumps(shown)
    assert "digits" in error_of("data", "show", "digitz")


def test_nan_in_the_data_is_refused():
    import fedskew as package

    x = np.zeros((40, 5), np.float32)
    x[7, 2] = np.nan
    with pytest.raises(FedskewError, match=r"NaN|nan|finite"):
        package.run({"data": {"clients": 2}}, data=(x, np.arange(40) % 2), workers=1)


def test_own_arrays_model_and_split():
    import torch

    import fedskew as package

    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5)).astype(np.float32)
    y = np.where(x[:, 0] > 0, "yes", "no")
    result = package.run(
        {"run": {"rounds": 15, "clients_per_round": 3}, "local": {"lr": 0.5}},
        data=(x[:200], y[:200], x[200:], y[200:]),
        model=lambda: torch.nn.Linear(5, 2),
        clients=np.arange(200) % 3,
        workers=1,
    )
    assert result.evaluations[-1][1] > 0.9
    assert set(result.state_dict()) == {"weight", "bias"}
    assert result.clients["examples"] == [67, 67, 66]
    assert len(result.clients["accuracy"]) == 3
    with pytest.raises(FedskewError):
        data.load("no_such_data")


def test_own_torch_datasets():
    import torch

    import fedskew as package

    x, y = torch.rand(120, 1, 4, 4), torch.arange(120) % 3
    train, test = (
        torch.utils.data.TensorDataset(x, y),
        torch.utils.data.TensorDataset(x[:30], y[:30]),
    )
    net = lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))  # noqa: E731
    result = package.run(
        {"run": {"rounds": 1}, "data": {"clients": 4}}, data=(train, test), model=net, workers=1
    )
    assert result.summary()["rounds"] == 1


def test_a_target_adds_what_it_took_or_that_it_was_not_reached(tmp_path):
    out = ["--out", str(tmp_path / "r")]
    result = json.loads(
        runner.invoke(cli.app, ["run", "fedavg", *SMALL, *out, "--target", "0.05", "--json"]).output
    )
    assert result["to_target"]["rounds"] == 0
    assert result["simulated_seconds"] > 0
    assert result["wh"] == pytest.approx(result["joules"] / 3600)
    assert result["sample_passes"] > 0
    shown = runner.invoke(cli.app, ["run", "fedavg", *SMALL, *out, "--target", "0.99"]).output
    assert "rounds to 0.99" in shown
    assert ">2" in shown
    assert "is no accuracy" in error_of(
        "run", "fedavg", *SMALL, "--out", str(tmp_path / "no"), "--target", "90"
    )


def test_measured_energy_wants_its_clients_alone(tmp_path):
    options = [
        "--set",
        "run.rounds=1",
        "--quiet",
        "--set",
        "run.energy=measured",
        "--out",
        str(tmp_path / "r"),
    ]
    assert "cannot be measured with 2 workers" in error_of(
        "run", "fedavg", *options, "--workers", "2"
    )
    result = json.loads(
        runner.invoke(cli.app, ["run", "fedavg", *options, "--resume", "--json"]).output
    )
    assert (result["energy"], result["joules"] > 0) == ("measured", True)
    assert json.loads((tmp_path / "r" / "run.json").read_text())["meter"]
    if importlib.util.find_spec("codecarbon") is not None:
        return
    assert "CodeCarbon is not installed" in error_of(
        "run", "fedavg", *SMALL, "--set", "run.energy=codecarbon", "--out", str(tmp_path / "c")
    )
