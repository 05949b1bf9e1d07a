"""Reference rows in comparisons: there by themselves, as reference_rows() has them, never
ranked, never computed twice.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from io import StringIO

from played import write_run
from rich.console import Console
from test_comparison import made
from typer.testing import CliRunner

from fedskew import Run, run
from fedskew.cli import main as cli
from fedskew.cli.compare import want_references
from fedskew.compare.comparison import Comparison
from fedskew.compare.contenders import add_references, line_up
from fedskew.errors import FedskewError, RunError, RunFolderError
from fedskew.experiment.references import reference_rows, with_references
from fedskew.records import (
    CHECKPOINT,
    COMPUTED,
    REFERENCES,
    RESULT,
    read_references,
    write_references,
)
from fedskew.report.exports import _runs
from fedskew.report.figures.paper import draw_ecdf
from fedskew.report.page import payload_of
from fedskew.report.terminal.comparison import show_comparison

runner = CliRunner()
SMALL = ["--set", "run.rounds=2", "--set", "model.use=logistic", "--quiet", "--workers", "1"]
ALL = ("local_only", *COMPUTED)


def call(*arguments):
    result = runner.invoke(cli.app, [*map(str, arguments)])
    if isinstance(result.exception, FedskewError):
        return str(result.exception)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def compare(out, *arguments):
    return call("compare", *arguments, "--out", out, *SMALL)


def figures(out, *arguments):
    return json.loads(
        runner.invoke(
            cli.app, ["compare", *arguments, "--out", str(out), *SMALL, "--seeds", "0-1", "--json"]
        ).stdout
    )


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A global and a personalised method, two seeds."""
    out = tmp_path_factory.mktemp("references")
    return out, compare(out, "fedavg", "clust_psi_pfl", "--seeds", "0-1")


def cell(out, name, seed=0):
    (folder,) = out.glob(f"{name}-*/seed-{seed}")
    return folder


# ---------------------------------------------------------------- they are there


def test_a_personalised_comparison_shows_all_four_by_itself(compared):
    _, text = compared
    block = text[text.index("references:") : text.index("minus fedavg")]
    assert [word for word in block.split() if word in ALL] == list(ALL)
    assert "added for the reference rows: local_only" in text
    assert "fine_tuned: fedavg's model" in " ".join(text.split())
    assert text.count("no global model") == 1


def test_their_values_are_those_of_reference_rows(compared):
    out, _ = compared
    found = {
        (row["recipe"], row["metric"]): row
        for row in figures(out, "fedavg", "clust_psi_pfl")["references"]
    }
    rows = [
        {row.name: row for row in reference_rows(Run.load(cell(out, "fedavg", seed)))}
        for seed in (0, 1)
    ]
    for name in COMPUTED:
        both = [each[name].fairness for each in rows]
        assert found[name, "client_accuracy"]["mean"] == pytest.approx(
            np.mean([f.weighted for f in both]), abs=1e-12
        )
        assert found[name, "ad"]["mean"] == pytest.approx(np.mean([f.ad for f in both]), abs=1e-12)
        assert found[name, "sdad"]["mean"] == pytest.approx(
            np.mean([f.sdad for f in both]), abs=1e-12
        )
    alone = [Run.load(cell(out, "local_only", seed)).fairness.weighted for seed in (0, 1)]
    assert found["local_only", "client_accuracy"]["mean"] == pytest.approx(
        np.mean(alone), abs=1e-12
    )
    assert found["local_only", "client_accuracy"]["n"] == 2


def test_json_keeps_them_apart_from_the_scores(compared):
    out, _ = compared
    found = figures(out, "fedavg", "clust_psi_pfl")
    assert {row["recipe"] for row in found["scores"]} == {"fedavg", "clust_psi_pfl"}
    assert {row["recipe"] for row in found["references"]} == set(ALL)
    assert {row["metric"] for row in found["references"]} == {
        *("client_accuracy", "worst10", "ad", "sdad")
    }
    assert all(row["difference_mean"] is None and not row["best"] for row in found["references"])
    assert len(found["runs"]) == 6


def test_a_folder_read_later_shows_them_without_computing(compared, monkeypatch):
    out, _ = compared
    # calling it would fail
    monkeypatch.setattr("fedskew.experiment.references.reference_rows", None)
    found = Comparison.read(out)
    assert [entry.label for entry in found.entries] == ["fedavg", "clust_psi_pfl"]
    assert [entry.label for entry in found.references] == list(ALL)
    assert {label for label, _ in _runs(found)} == {"clust_psi_pfl", "fedavg", "local_only"}
    clients = [row for row in found.rows("clients") if row["reference"]]
    assert len(clients) == 4 * 2 * 20
    payload = payload_of(found)
    assert [row["label"] for row in payload["table"]["references"]] == list(ALL)
    assert [len(each["runs"][1]["accuracies"]) for each in payload["references"]] == [20] * 4
    assert [method["label"] for method in payload["methods"]] == ["fedavg", "clust_psi_pfl"]
    assert call("report", out, "-o", out / "r.html")
    assert "References, not ranked" in (out / "r.html").read_text()


def test_the_ecdf_draws_them_and_arrow_takes_them(compared):
    pytest.importorskip("matplotlib")
    found = Comparison.read(compared[0])
    (axes,) = draw_ecdf(found).axes
    assert [line.get_label() for line in axes.lines] == ["fedavg", "clust_psi_pfl", *ALL]
    pytest.importorskip("pyarrow")
    assert found.arrow("clients").num_rows == 6 * 2 * 20
    assert found.arrow("scores").column("reference").to_pylist().count(True) == 4 * 4


# ---------------------------------------------------------------- never computed twice


def test_a_second_call_computes_nothing(compared):
    out, _ = compared
    files = [*out.rglob(REFERENCES), *out.rglob(RESULT)]
    before = [os.stat(path).st_mtime_ns for path in files]
    assert len(files) == 2 + 6
    assert "6 of 6 runs are there already" in compare(
        out, "fedavg", "clust_psi_pfl", "--seeds", "0-1"
    )
    assert [os.stat(path).st_mtime_ns for path in files] == before


def test_after_a_kill_only_missing_rows_are_computed(compared):
    out, _ = compared
    folder = cell(out, "fedavg")
    whole = read_references(folder)
    marked = {"accuracy": [0.25] * 20, "test_examples": [4] * 20}
    # as if it had been killed after the first row
    write_references(folder, {"majority_class": marked})
    result = os.stat(folder / RESULT).st_mtime_ns
    text = compare(out, "fedavg", "clust_psi_pfl", "--seeds", "0-1")
    assert "6 of 6 runs are there already" in text
    assert read_references(folder) == {**whole, "majority_class": marked}
    assert os.stat(folder / RESULT).st_mtime_ns == result
    write_references(folder, whole)


def test_a_reference_that_fails_costs_the_comparison_nothing(compared):
    out, _ = compared
    folder = cell(out, "local_only", 1)
    kept = {name: (folder / name).read_bytes() for name in (RESULT, CHECKPOINT)}
    (folder / RESULT).unlink()
    (folder / CHECKPOINT).write_bytes(b"x")
    text = compare(out, "fedavg", "clust_psi_pfl", "--seeds", "0-1")
    assert "no reference rows: " in text
    assert "clients' accuracy" in " ".join(text.split())
    assert "not for every seed: local_only" in text
    for name, content in kept.items():
        (folder / name).write_bytes(content)


# ---------------------------------------------------------------- when they are wanted


def test_no_references_leaves_them_out_and_local_only_is_then_a_method(compared):
    out, _ = compared
    text = compare(out, "fedavg", "clust_psi_pfl", "--seeds", "0-1", "--no-references")
    assert not any(word in text for word in ("references", *ALL))
    text = compare(
        out, "fedavg", "clust_psi_pfl", "local_only", "--seeds", "0-1", "--no-references"
    )
    assert "local_only †" in text
    assert "references" not in text


def test_without_a_personalised_method_they_come_only_when_asked_for(compared, tmp_path):
    out, _ = compared
    shutil.copytree(cell(out, "fedavg").parent, tmp_path / cell(out, "fedavg").parent.name)
    # though they are on disk
    assert "references" not in compare(tmp_path, "fedavg", "--seeds", "0")
    assert [path.name.split("-")[0] for path in tmp_path.glob("*/")] == ["fedavg"]
    assert "majority_class" in compare(tmp_path, "fedavg", "--seeds", "0", "--references")
    assert [e.label for e in Comparison.read(tmp_path, references=True).references] == list(ALL)


def test_clients_without_test_sets(tmp_path):
    arguments = ("fedavg", "clust_psi_pfl", "--seeds", "0", "--set", "data.client_test=none")
    assert "--references: clients have no test sets" in compare(
        tmp_path, *arguments, "--references"
    )
    assert list(tmp_path.iterdir()) == []
    assert not want_references(line_up(["fedavg", "cfl"], {"data.client_test": "none"}), None)
    note = "no reference rows: clients have no test sets; set data.client_test to split or matched"
    assert Comparison.of([made("one")], references=True).notes() == [note]


def test_runs_made_one_by_one_say_what_is_missing():
    note = (
        "without the reference rows local_only, majority_class, fine_tuned, centralised: "
        "fedskew compare makes them"
    )
    clients = {"accuracy": [1.0], "test_examples": [1]}
    personal = made("many", accuracies=(math.nan,) * 3, client_accuracy=0.7, clients=clients)
    assert Comparison.of([made("one", clients=clients), personal]).notes() == [note]
    assert Comparison.of([made("one", clients=clients), personal], references=False).notes() == []
    assert Comparison.of([made("one", clients=clients)]).notes() == []


# ---------------------------------------------------------------- never ranked


def perfect(name, accuracy, references):
    clients = {"accuracy": [accuracy] * 4, "test_examples": [5] * 4}
    perfect = {"accuracy": [1.0] * 4, "test_examples": [5] * 4}
    runs = [
        made(name, s, clients={**clients, "accuracy": [accuracy + s / 1000] * 4}) for s in range(5)
    ]
    return [replace(run, references={"fine_tuned": perfect} if references else {}) for run in runs]


def test_the_best_method_is_best_whatever_a_reference_has():
    found = Comparison.of(
        [*perfect("base", 0.5, True), *perfect("ours", 0.6, False)], references=True
    )
    table = found.table()
    assert table.best["client_accuracy"] == 1
    assert table.references[0].estimates["client_accuracy"].mean == 1
    assert all(difference.n == 0 for difference in table.references[0].differences.values())
    assert table.tuned == "base"
    shown = StringIO()
    show_comparison(
        table, Console(file=shown, width=100, force_terminal=True, color_system="truecolor")
    )
    (line,) = [
        line for line in shown.getvalue().splitlines() if "fine_tuned" in line and "1.000" in line
    ]
    assert "\x1b[1m" not in line


def test_local_only_is_compared_like_a_method_only_where_it_is_alone():
    def alone(seed):
        run = made(
            "local_only",
            seed,
            (math.nan,) * 3,
            client_accuracy=0.9,
            clients={"accuracy": [0.9], "test_examples": [1]},
        )
        return replace(run, recipe={**run.recipe, "procedure": {"use": "local_only"}})

    beside = Comparison.of([alone(0), alone(1), made("one", 0), made("one", 1)])
    assert [e.label for e in beside.entries] == ["one"]
    assert [e.label for e in beside.references] == ["local_only"]
    assert not math.isnan(beside.table(budget="bytes").budget_size)
    assert beside.table(budget="bytes").budget_size == 200  # not the nothing that local_only sends
    by_itself = Comparison.of([alone(0)])
    assert ([e.label for e in by_itself.entries], by_itself.references) == (["local_only"], ())


# ---------------------------------------------------------------- which runs


def test_fedavg_is_tuned_if_it_is_there_else_the_first_global_method():
    def tuned_of(*names):
        more, tuned = add_references(line_up(names))
        return [one.label for one in more], tuned.label

    assert tuned_of("fedprox", "fedavg", "cfl") == (
        ["fedprox", "fedavg", "cfl", "local_only"],
        "fedavg",
    )
    assert tuned_of("cfl", "fedprox", "local_only") == (["cfl", "fedprox", "local_only"], "fedprox")
    assert tuned_of("ifca", "local_only") == (["ifca", "local_only", "fedavg"], "fedavg")


def test_what_is_added_trains_as_the_first_personalised_method_does():
    settings = {"clust_psi_pfl:local.lr": 0.007, "run.rounds": 3, "data.clients": 11}
    contenders = line_up(["fedavg", "clust_psi_pfl"], settings)
    more, _ = add_references(contenders)
    assert more[-1].recipe["local"] == contenders[1].recipe["local"]
    assert more[-1].recipe["data"] == contenders[0].recipe["data"]
    assert more[-1].recipe["run"]["rounds"] == 3


# ---------------------------------------------------------------- in Python, and bad input


def test_in_python_without_folders():
    settings = {"run.rounds": 1, "model.use": "logistic"}
    fedavg, psi = (
        run(name, settings={**settings, "data.clients": 20}, workers=1)
        for name in ("fedavg", "clust_psi_pfl")
    )
    rows: list[str] = []
    found = Comparison.of([with_references(fedavg, on_row=rows.append), psi])
    assert rows == list(COMPUTED)
    assert [entry.label for entry in found.references] == list(COMPUTED)
    assert "without the reference rows local_only" in found.notes()[-1]


def test_a_row_that_cannot_be_had_is_kept_with_its_reason(tmp_path):
    result = run(
        "fedavg", settings={"run.rounds": 1, "model.use": "logistic"}, workers=1, out=tmp_path / "a"
    )
    several = replace(result, final_model=(np.concatenate([result.models] * 2), result.layout))
    found = with_references(several)
    assert "only a global model can be tuned" in found.references["fine_tuned"]["failed"]
    table = Comparison.of([found], references=True).table()
    assert [row.label for row in table.references] == ["majority_class", "centralised"]
    assert any("no reference fine_tuned, seed 0: " in note for note in table.notes)
    assert set(read_references(tmp_path / "a")) == set(COMPUTED)


def test_runs_without_client_tests_are_refused():
    result = run("fedavg", settings={"run.rounds": 1, "data.client_test": "none"}, workers=1)
    with pytest.raises(RunError, match="clients have no test sets"):
        with_references(result)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        '{"a": 1}',
        '{"a": {"accuracy": [1], "test_examples": []}}',
        '{"a": {"accuracy": ["<b>"], "test_examples": [1]}}',
    ],
)
def test_a_damaged_file_is_one_clear_line(tmp_path, content):
    write_run(tmp_path / "a")
    (tmp_path / "a" / REFERENCES).write_text(content)
    with pytest.raises(RunFolderError, match=r"references\.json"):
        Comparison.read(tmp_path / "a")
