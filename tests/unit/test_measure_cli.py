"""``fedskew measure`` and ``fedskew privacy`` as a person meets them."""

from __future__ import annotations

import io
import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import tomli_w
import typer
from rich.console import Console
from typer.testing import CliRunner

from fedskew.cli import measure as cli_measure
from fedskew.data import load
from fedskew.errors import FedskewError
from fedskew.experiment.world import shards_of
from fedskew.measure.groups import PAPER_RULES
from fedskew.measure.privacy import NoiseRow, PrivacyTable, Spread
from fedskew.recipe import resolve
from fedskew.records import no_none
from fedskew.report.terminal.measurement_tables import noise_table

pytest.importorskip("pyarrow")

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
app.command("measure")(cli_measure.measure)
app.command("privacy")(cli_measure.privacy)
runner = CliRunner()


def output(*arguments: str) -> str:
    result = runner.invoke(app, list(arguments))
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def error_of(*arguments: str) -> str:
    result = runner.invoke(app, list(arguments))
    assert isinstance(result.exception, FedskewError), (result.output, result.exception)
    assert "\n" not in str(result.exception)
    return str(result.exception)


def strict(text: str) -> dict:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.csv"
    path.write_text(
        "client,cat,dog,eel\na,9,1,0\nb,8,2,0\nc,0,9,1\nd,1,8,1\ne,0,0,9\nf,0,1,8\nnobody,0,0,0\n"
    )
    return str(path)


def test_the_table_and_the_sentence(small):
    text = output("measure", small)
    for part in (
        "clients",
        "6 and 1 without examples",
        "HD",
        "JSD",
        "EMD (FedArtML)",
        "WPSI",
        "omega reverse",
        "Jmax = ",
        "τ = ",
    ):
        assert part in text
    assert "note: 1 client without examples left out: 'nobody'" in text
    assert "HD between chance and ceiling: below 10 % hardly" in text
    last = text.strip().split("\n")[-1]
    assert last.startswith("This federation is ")
    assert last.endswith(").")
    for paper in ("AFLS", "Clust-PSI-PFL", "FedLECC", "similarity study"):
        assert paper in last


def test_json_holds_everything_and_no_nan(small):
    found = strict(output("measure", small, "--json"))
    assert found["figures"]["num_clients"] == 7
    assert found["empty_clients"] == ["nobody"]
    assert found["clients"]["name"] == [*"abcdef", "nobody"]
    assert found["clients"]["psi"][-1] is None
    assert found["clients"]["fedlecc_cluster"][-1] == -1
    assert found["labels"]["name"] == ["cat", "dog", "eel"]
    assert sum(found["labels"]["psi"]) == pytest.approx(found["figures"]["wpsi"])
    assert found["afls"]["procedure"] == "sequential"
    # 2 of 3 classes each
    assert found["afls"]["omega"] > found["afls"]["threshold"] == pytest.approx(3.969, abs=1e-3)
    assert set(found["groupings"]) == {"clust_psi_pfl", "fedlecc", "similarity"}
    assert found["verdict"].startswith("This federation is")


def test_counts_option_is_the_source(small):
    assert (
        strict(output("measure", "--counts", small, "--json"))["figures"]
        == strict(output("measure", small, "--json"))["figures"]
    )


@pytest.mark.parametrize("name", ["[red]evil[/red]", "<b>&amp;</b>", "[/]", "\\[x]"])
def test_names_are_never_markup(tmp_path, name):
    path = tmp_path / "names.csv"
    path.write_text(f"client,label,count\n{name},x,9\nb,y,9\nc,x,9\nempty{name},x,0\n")
    text = output("measure", str(path))
    assert f"{name} (PSI" in text
    assert f"'empty{name}'" in text


def test_names_cannot_move_the_cursor(tmp_path):
    path = tmp_path / "names.csv"
    path.write_bytes(b"client,label,count\n\x1b[2Ja\x07,x,9\nb,y,9\n")
    assert "\x1b" not in output("measure", str(path))


def test_default_is_digits_and_options_reach_the_partition():
    found = strict(output("measure", "--json"))
    assert (found["figures"]["num_clients"], found["figures"]["num_examples"]) == (20, 1797)
    assert found["source"] == "digits, dirichlet (alpha = 0.3), 20 clients, seed 0"
    two = output(
        "measure",
        "--partition",
        "equal_classes",
        "--set",
        "partition.classes_per_client=2",
        "--clients",
        "10",
    )
    assert "8.888" in two
    assert "AFLS would train sequentially" in two
    three = output(
        "measure",
        "--partition",
        "equal_classes",
        "--set",
        "partition.classes_per_client=3",
        "--clients",
        "10",
    )
    assert "AFLS would train in parallel" in three


def test_seed_decides_the_partition():
    assert (
        strict(output("measure", "--seed", "1", "--json"))["figures"]
        != strict(output("measure", "--json"))["figures"]
    )


def test_a_private_signal_shows_both(small):
    pytest.importorskip("opendp")
    assert "seen at ε = 0.5" in output("measure", small, "--epsilon", "0.5")
    found = strict(
        output(
            "measure", small, "--signal", "private", "--set", "signal.mechanism=laplace", "--json"
        )
    )
    assert found["signal"] == {"source": "private", "epsilon": 1.0}


def test_the_widest_privacy_table_fits_80_columns():
    low = Spread(-0.27, 0.15)
    wide = NoiseRow(
        0.001,
        Spread(0.555, 0.123),
        *[Spread(0.5, 0.1)] * 4,
        *[{rule.key: low for rule in PAPER_RULES}] * 2,
    )
    console = Console(width=80, file=io.StringIO())
    console.print(
        noise_table(PrivacyTable(None, PAPER_RULES, (wide,), 2, "geometric", "add_remove"))
    )
    assert console.file.getvalue().rstrip().endswith("-0.27±0.15  -0.27±0.15  -0.27±0.15")


def test_privacy_prints_a_table(small):
    pytest.importorskip("opendp")
    text = output("privacy", small, "--epsilons", "0.1,10", "--repeats", "2")
    lines = text.split("\n")
    assert [line.split()[0] for line in lines if line.strip()[:3] in ("0.1", "10 ", "non")] == [
        "0.1",
        "10",
        "none",
    ]
    rows = [line.rstrip() for line in lines if line.count("±") == 4]
    assert len(rows) == 3
    # nothing is cut off at 80 columns
    assert all(re.search(r"\d±\d\.\d\d$", row) and len(row) <= 80 for row in rows)
    found = strict(output("privacy", small, "--epsilons", "0.1,10", "--repeats", "2", "--json"))
    assert [row["epsilon"] for row in found["rows"]] == [0.1, 10.0, None]
    assert set(found["rows"][0]["ari"]) == {"clust_psi_pfl", "fedlecc", "similarity"}
    assert (found["mechanism"], found["neighbours"], found["repeats"]) == (
        "geometric",
        "add_remove",
        2,
    )


# ---------------------------------------------------------------- run folders


@pytest.fixture
def run_folder(tmp_path: Path):
    """What a run leaves behind, without the training."""
    resolved = resolve(
        {"name": "x", "data": {"clients": 7}, "partition": {"use": "dirichlet", "alpha": 0.5}}
    )
    shards = shards_of(resolved, load("digits"), 3)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "recipe.toml").write_text(tomli_w.dumps(no_none(resolved)))
    (folder / "run.json").write_text(
        json.dumps({"seed": 3, "partition": asdict(shards.train.report)})
    )
    return folder, shards, resolved


def test_a_run_folder_is_measured_as_it_was_trained(run_folder):
    folder, shards, _ = run_folder
    found = strict(output("measure", str(folder), "--json"))
    assert found["clients"]["examples"] == shards.train.sizes.tolist()
    assert found["seed"] == 3
    assert "after a share of their examples was set aside" in found["notes"][0]
    (folder / "clients.json").write_text(json.dumps({"examples": shards.train.sizes.tolist()}))
    assert strict(output("measure", str(folder), "--json"))["figures"] == found["figures"]


def test_a_run_with_a_split_of_its_own_is_not_guessed_at(run_folder):
    folder, shards, _ = run_folder
    (folder / "clients.json").write_text(
        json.dumps({"examples": (shards.train.sizes + 1).tolist()})
    )
    assert "its clients are not those of its recipe" in error_of("measure", str(folder))


def test_run_folders_that_cannot_be_measured(run_folder, tmp_path):
    folder, _, resolved = run_folder
    (folder / "recipe.toml").write_text(
        tomli_w.dumps(no_none({**resolved, "data": {**resolved["data"], "use": "custom"}}))
    )
    assert "data of your own" in error_of("measure", str(folder))
    (tmp_path / "empty").mkdir()
    assert "is not a run folder" in error_of("measure", str(tmp_path / "empty"))


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.csv"], "there is no such file"),
        (["mnist"], "Did you mean --data mnist?"),
        (["--data", "mnits"], "Did you mean 'mnist'?"),
        (["--partition", "dirichelt"], "Did you mean 'dirichlet'?"),
        (["--set", "partition.alhpa=1"], "Did you mean 'alpha'?"),
        (["--set", "partition.alpha"], "has no '='"),
        (["--set", "local.lr=1"], "there is no [local] to measure"),
        (["--set", "clustering.nosie=drop"], "Did you mean 'noise'?"),
        (["--distance", "helinger"], "Did you mean 'hellinger'?"),
        (["--distance", "emd"], "w1_index"),
        (["--clustering", "optcis"], "Did you mean 'optics'?"),
        (["--signal", "histogram", "--epsilon", "1"], "has no meaning"),
        (["--epsilon", "-1"], "epsilon = -1"),
        (["--signal", "private", "--set", "signal.mechanism=gauss"], "mechanism"),
        (["--format", "long"], "none is given"),
        (["--clients", "5000"], "only 1797 examples"),
    ],
)
def test_wrong_options_are_one_clear_line(arguments, message):
    assert message in error_of("measure", *arguments)


def test_options_that_do_not_go_together(small):
    assert "given together with a source" in error_of("measure", small, "--counts", small)
    assert "given together with --data" in error_of("measure", small, "--data", "digits")
    assert "given together with --data" in error_of("measure", small, "--set", "partition.alpha=1")
    assert "'tall' is unknown" in error_of("measure", small, "--format", "tall")
    assert "not a list of numbers" in error_of("privacy", small, "--epsilons", "1;2")
