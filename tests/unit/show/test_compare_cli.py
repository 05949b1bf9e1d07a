"""fedskew compare with real runs: what is there is reused, what was killed goes on, what is
wrong is one line.
"""

from __future__ import annotations

import json
import os

import pytest

pytest.importorskip("torch")

from typer.testing import CliRunner

from fedskew import Comparison, Run
from fedskew.cli import main as cli
from fedskew.errors import FedskewError
from fedskew.records import RESULT

runner = CliRunner()


def compare(out, *arguments):
    result = runner.invoke(
        cli.app, ["compare", *arguments, "--out", str(out), "--set", "run.rounds=2", "--quiet"]
    )
    if isinstance(result.exception, FedskewError):
        return str(result.exception)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two methods, two seeds, compared once."""
    out = tmp_path_factory.mktemp("compare")
    return out, compare(out, "fedavg", "fedlecc", "--seeds", "0-1", "--report", str(out / "r.html"))


def cells(out):
    return sorted(path.parent for path in out.rglob(RESULT))


def test_it_prints_a_table_and_says_what_is_shared(compared):
    out, text = compared
    assert (
        "all methods on one federation: digits, dirichlet (alpha 0.3), K = 20, m = 5, 2 rounds"
        in text
    )
    assert (
        "clients' own training differs, so accuracy may too: epochs 1 (fedavg), 5 (fedlecc); batch"
        in text
    )
    assert "--same-training makes it that of fedavg" in text
    assert "own training differs" in (out / "r.html").read_text(encoding="utf8"), (
        "a report may be read without the terminal"
    )
    assert "final accuracy" in text
    assert "minus fedavg" in text
    assert "fewer than 5 seeds" in text
    assert "AD: mean distance of the clients' accuracies from 1" in " ".join(text.split())
    assert " ".join(text.split()).count(Comparison.read(out).against("fedavg").verdict()) == 1
    assert len(cells(out)) == 4
    assert "needs no network" in text
    assert (out / "r.html").stat().st_size > 50_000


def test_what_is_there_is_reused(compared):
    out, _ = compared
    before = {cell: os.stat(cell / RESULT).st_mtime_ns for cell in cells(out)}
    text = compare(
        out, "fedavg", "fedlecc", "--seeds", "0-1", "--budget", "bytes", "--target", "0.05"
    )
    assert "4 of 4 runs are there already" in text
    assert "rounds to 0.05" in text
    assert "against fedavg" in text
    assert {cell: os.stat(cell / RESULT).st_mtime_ns for cell in cells(out)} == before


def test_a_killed_cell_goes_on_and_gives_the_same_bytes(compared):
    out, _ = compared
    cell = cells(out)[0]
    whole = (cell / "clients.json").read_bytes()
    (cell / RESULT).unlink()
    (cell / "clients.json").unlink()
    text = compare(out, "fedavg", "fedlecc", "--seeds", "0-1")
    assert "3 of 4 runs are there already" in text
    assert (cell / "clients.json").read_bytes() == whole


def test_json_holds_all_figures(compared):
    out, _ = compared
    result = runner.invoke(
        cli.app,
        [
            "compare",
            "fedavg",
            "fedlecc",
            "--seeds",
            "0-1",
            "--out",
            str(out),
            "--set",
            "run.rounds=2",
            "--json",
        ],
    )
    found = json.loads(result.stdout)
    row = next(r for r in found["scores"] if r["recipe"] == "fedlecc" and r["metric"] == "final")
    assert row["n"] == 2
    assert row["difference_mean"] is not None
    assert found["budget_size"] == 2
    assert len(found["runs"]) == 4
    assert found["verdict"] == Comparison.read(out).against("fedavg").verdict()
    assert "2 seeds are too few to call that real" in found["verdict"]


def test_the_runs_keep_label_counts_and_clusters(compared):
    out, _ = compared
    runs = [Run.read(cell) for cell in cells(out)]
    assert all(
        run.labels is not None and run.labels.counts.sum(axis=1).tolist() == run.clients["examples"]
        for run in runs
    )
    assert ["cluster" in run.clients for run in runs] == [run.name == "fedlecc" for run in runs]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fedavg", "fedavgg"], "Did you mean 'fedavg'?"),
        (["fedavg", "--seeds", "4-0"], "names no seeds"),
        (["fedavg", "--seeds", "x"], "is not a list of seeds"),
        (["fedavg", "--budget", "byte"], "Did you mean 'bytes'?"),
        (["fedavg", "--target", "0"], "is not an accuracy"),
        (["fedavg", "haccs"], "devices.classes = 'haccs'"),
        (["fedavg", "--set", "other:local.lr=1"], "'other' is not in this comparison"),
    ],
)
def test_wrong_input_runs_nothing(tmp_path, arguments, message):
    assert message in compare(tmp_path, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_cell_that_fails_does_not_cost_the_others(compared):
    out, _ = compared
    cell = cells(out)[0]
    (cell / RESULT).unlink()
    checkpoint = (cell / "checkpoint.safetensors").read_bytes()
    (cell / "checkpoint.safetensors").write_bytes(b"x")
    text = compare(out, "fedavg", "fedlecc", "--seeds", "0-1")
    assert "1 of 4 runs failed, 3 are complete" in text
    (cell / "checkpoint.safetensors").write_bytes(checkpoint)
    assert "final accuracy" in compare(out, "fedavg", "fedlecc", "--seeds", "0-1")
