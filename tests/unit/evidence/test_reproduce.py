"""``fedskew reproduce``: what is listed, what is printed, what is refused."""

from __future__ import annotations

import json

import pytest
from test_making import MEASURE, MEASURED
from typer.testing import CliRunner

from fedskew.cli.main import app
from fedskew.errors import StudyError

SMALLER = """
[scale.smoke]
seeds = [0]
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "evidence" / "counted"
    folder.mkdir(parents=True)
    (folder / "study.toml").write_text(MEASURED + SMALLER)
    (folder / "measure.py").write_text(MEASURE)

    def reproduce(*words: str) -> str:
        done = CliRunner().invoke(app, ["reproduce", *words])
        if done.exception is not None:
            raise done.exception
        return done.stdout

    return reproduce


def test_the_list_says_what_is_missing_and_who_made_the_rest(run):
    (before,) = json.loads(run("--json"))
    assert (before["cells"], before["missing"], before["made with"]) == (4, 4, [])
    assert "4 missing" in run()
    run("counted", "--workers", "1", "--quiet")
    (after,) = json.loads(run("--json"))
    assert (after["missing"], after["older"], after["up to date"]) == (0, 0, 4)
    assert after["made with"][0].startswith("0.")
    assert "up to date" in run()


def test_it_writes_results_and_page_beside_the_study(run, tmp_path):
    facts = json.loads(run("counted", "--workers", "1", "--json"))
    assert facts["study"] == "counted"
    assert "| 2 | 20.5 ± 6.4 |" in (tmp_path / facts["page"]).read_text(encoding="utf8")
    assert (tmp_path / "evidence" / "counted" / "results.json").is_file()


def test_a_smaller_scale_leaves_the_study_alone(run, tmp_path):
    run("counted", "--workers", "1", "--quiet", "--scale", "smoke")
    assert not (tmp_path / "evidence" / "counted" / "results.json").exists()
    page = tmp_path / "runs" / "evidence" / "counted-smoke" / "README.md"
    assert "**Scale: smoke.**" in page.read_text(encoding="utf8")


def test_pages_are_written_again_without_playing(run, tmp_path):
    run("counted", "--workers", "1", "--quiet")
    page = tmp_path / "evidence" / "counted" / "README.md"
    before = page.read_text(encoding="utf8")
    page.write_text("scribbled")
    run("counted", "--page")
    assert page.read_text(encoding="utf8") == before
    (tmp_path / "evidence" / "counted" / "reading.md").write_text("Words of a person.")
    run("--page")
    assert "Words of a person." in page.read_text(encoding="utf8")
    assert "counted/README.md" in (tmp_path / "evidence" / "README.md").read_text(encoding="utf8")


def test_what_is_refused(run, tmp_path):
    with pytest.raises(StudyError, match=r"has no results yet\. Run: fedskew reproduce counted"):
        run("counted", "--page")
    with pytest.raises(StudyError, match="Did you mean 'counted'"):
        run("countd")
    with pytest.raises(StudyError, match="holds no studies"):
        run("--studies", str(tmp_path))


def test_data_that_only_the_user_has(run, tmp_path, monkeypatch):
    """A clear word where the folder is missing; another file is another cell."""
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDSKEW_DATA_FOLDER", raising=False)
    path = tmp_path / "evidence" / "counted" / "study.toml"
    path.write_text(
        path.read_text().replace("[[grid]]", '[set]\n"data.use" = "acsincome"\n[[grid]]')
    )
    (facts,) = json.loads(run("--json"))
    assert facts["needs"] == ["acsincome"]
    assert "needs acsincome: --data-folder" in " ".join(run().split())
    with pytest.raises(StudyError, match=r"acsincome\*.parquet: --data-folder FOLDER, or FEDSKEW"):
        run("counted", "--workers", "1", "--quiet")
    with pytest.raises(StudyError, match="does not hold it"):
        run("counted", "--workers", "1", "--quiet", "--data-folder", str(tmp_path))


def test_cells_without_data_are_skipped_with_the_reason(run, tmp_path, monkeypatch, capsys):
    """The others are made, and what was there before stays."""
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDSKEW_DATA_FOLDER", raising=False)
    path = tmp_path / "evidence" / "counted" / "study.toml"
    more = """
    [[grid]]
    name = "brought"
    measure = "measure.py:count"
    set = { "data.use" = "acsincome", "measure.step" = 3 }
    """
    path.write_text(path.read_text().replace("[[page]]", f"{more}\n[[page]]"))
    said = []
    monkeypatch.setattr("fedskew.cli.studies._Display.line", lambda self, text: said.append(text))
    facts = json.loads(run("counted", "--workers", "1", "--json"))
    assert (facts["cells"], facts["up to date"], facts["missing"]) == (5, 4, 1)
    assert said[0].startswith("1 cells are not played: data acsincome: ")
    page = (tmp_path / facts["page"]).read_text(encoding="utf8")
    assert "**Not complete.** 1 of 5 cells are missing." in page
