"""Benchmarks that hold on any machine: times are told in yardsticks, and what is not installed is
said in a sentence.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import compare as compare_benchmark
import yardstick

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("speed", [1.0, 1.55, 20.0])
def test_a_slower_machine_gives_the_same_figure(
    speed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(yardstick, "work", lambda: now.append(now[-1] + 0.01 * speed))
    figure = yardstick.in_yardsticks("a rule", lambda: 0.02 * speed, 3, clock=lambda: now[-1])
    assert figure.value == pytest.approx(2)
    assert figure.ok


def test_a_slower_rule_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(yardstick, "work", lambda: now.append(now[-1] + 0.01))
    assert not yardstick.in_yardsticks("a rule", lambda: 0.04, 3, clock=lambda: now[-1]).ok


def test_the_yardstick_is_real_work() -> None:
    assert yardstick.work() == yardstick.work() > 200_000
    assert 1e-4 < yardstick.yardstick() < 10


def test_without_the_browsers_driver_the_report_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    page.write_text("<p>")
    there = {"chromium": "/usr/bin/chromium"}
    monkeypatch.setattr(shutil, "which", there.get)
    monkeypatch.setattr(compare_benchmark, "page_of", lambda *_: page)
    figures = compare_benchmark.pages(tmp_path)
    assert ["MB" in figure.name for figure in figures] == [True, True]
    said = capsys.readouterr().out
    assert "the report is not opened in a browser: install chromium-driver of Debian" in said


def test_no_limit_is_on_seconds() -> None:
    """Names say what a number is: none of them seconds, unless it is for information only."""
    named = re.compile(r'Figure\(\s*f?"([^"]*(?:\[m?s\]|seconds|: s )[^"]*)"')
    found = {
        path.name: names
        for path in BENCHMARKS.glob("*.py")
        if (names := named.findall(path.read_text()))
    }
    assert found == {}
