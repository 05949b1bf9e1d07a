"""Names that want to be markup, paths, escapes or script: shown as they are, or refused."""

from __future__ import annotations

import re
import tomllib

import pytest
import tomli_w
from played import write_run
from typer.testing import CliRunner

from fedskew import Comparison
from fedskew.cli import main as cli
from fedskew.deploy.app import write_app
from fedskew.errors import FedskewError
from fedskew.experiment.run_folders import run_folder
from fedskew.recipe import load, resolve
from fedskew.report.page.html import page_html
from fedskew.report.page.payload import payload_of

PRINTED = (
    "[red]x[/]", "[/]", "a\" b' c", "../../up", "/etc/passwd", "..", "</script><b>&amp;", "$x_{",
    "@SEED@", "\\", "a: b # c", "<!--", "-rf", "x" * 200, "%s {0}",
)  # fmt: skip
REFUSED = ("a\nb", "\x1b[31mred", "\x00", "\u202eevil", "a\tb", "", "   ", "x" * 201, 3, ["a"])


@pytest.mark.parametrize("name", REFUSED)
def test_names_that_cannot_be_printed_are_refused(name, tmp_path):
    with pytest.raises(FedskewError, match="name") as refused:
        resolve({"name": name})
    assert str(refused.value).isprintable()
    folder = write_run(tmp_path / "run")
    raw = tomllib.loads((folder / "recipe.toml").read_text())
    (folder / "recipe.toml").write_text(tomli_w.dumps({**raw, "name": name}))
    with pytest.raises(FedskewError, match="name"):
        Comparison.read(folder)


@pytest.mark.parametrize("name", PRINTED)
def test_a_run_folder_stays_where_it_belongs(name, tmp_path):
    path = run_folder(tmp_path / "runs", resolve({"name": name}), 0)
    assert path.resolve().is_relative_to(tmp_path / "runs")
    assert len(path.relative_to(tmp_path).parts) == 3
    path.mkdir(parents=True)


@pytest.mark.parametrize("name", PRINTED)
def test_an_app_of_any_name_is_what_it_would_be(name, tmp_path):
    write_app(tmp_path / "my-fleet", {**resolve(load("fedavg")), "name": name})
    project = tomllib.loads((tmp_path / "my-fleet" / "pyproject.toml").read_text())
    assert project["project"]["description"] == f"{name} on a fleet, by fedskew"
    assert project["tool"]["flwr"]["app"]["components"]["serverapp"] == "server_app:app"
    assert resolve(load(tmp_path / "my-fleet" / "recipe.toml"))["name"] == name


def test_reports_and_tables_show_names_as_they_are(tmp_path):
    evil = "</script><img src=x onerror=alert(1)>"
    for number, name in enumerate(PRINTED[:9]):
        clients = [f"{evil}{i}" for i in range(12)]
        own = {"lr": 0.1 + number / 100}  # or they are one method
        write_run(tmp_path / str(number), name, names=clients, failing=evil, local=own)
    found = Comparison.read(tmp_path)
    page = page_html(payload_of(found, target=0.5, commands=[evil]))
    assert evil not in page
    bodies = re.findall(r"<script[^>]*>(.*?)</script>", page, re.S)
    assert page.count("<script") == len(bodies) == page.count("</script")
    assert "onerror=alert" not in re.sub(r"<script.*?</script>", "", page, flags=re.S).replace(
        "&lt;img src=x onerror=alert", ""
    )
    done = CliRunner().invoke(cli.app, ["report", str(tmp_path), "-o", str(tmp_path / "r.html")])
    assert done.exit_code == 0, done.exception
    from io import StringIO

    from rich.console import Console

    from fedskew.report.terminal.comparison import show_comparison

    shown = StringIO()
    show_comparison(found.table(), Console(file=shown, width=400))
    for name in ("[red]x[/]", "[/]", "$x_{"):
        assert name in shown.getvalue(), name


def test_figures_take_names_for_names(tmp_path):
    pytest.importorskip("matplotlib")
    from fedskew.report.figures.paper import save_paper_figures

    write_run(tmp_path / "a", "$x_{$ \\frac", seed=0)
    write_run(tmp_path / "b", "_hidden", seed=0, level=0.5)
    assert save_paper_figures(Comparison.read(tmp_path), tmp_path / "figures")


def test_a_run_of_a_hostile_name_from_the_command_line(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "r.toml").write_text(tomli_w.dumps({"name": "[/]../[red]", "run": {"rounds": 1}}))
    runner, out = CliRunner(), ["--out", str(tmp_path / "o"), "--workers", "1"]
    done = runner.invoke(cli.app, ["run", str(tmp_path / "r.toml"), *out])
    assert done.exit_code == 0, done.exception
    assert "[/]../[red]" in done.output
