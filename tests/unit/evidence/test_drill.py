"""evidence/drill: its page is what its results say, and nothing in it is bad."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
import drill
from fedskew.recipe import shipped_recipes
from kills import SMALL, small

ROOT = Path(__file__).resolve().parents[3]


def test_page_and_results_agree():
    results = json.loads((ROOT / "evidence" / "drill" / "results.json").read_text())
    assert drill.page(results) == (ROOT / "evidence" / "drill" / "README.md").read_text()
    assert results["bad"] == []
    assert "**Zero bad.**" in drill.page(results)
    assert sum(row["kills"] for row in results["kills"].values()) >= 50


def test_one_bad_run_is_on_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(drill, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(drill, "FOLDER", tmp_path)
    monkeypatch.setattr(drill, "PAGE", tmp_path / "README.md")
    call = drill.Drill(tmp_path)
    call.keep("kills", "fedavg", {"runs": 1, "kills": 3})
    assert "**Zero bad.**" in drill.page(call.results)
    call.keep("kills", "fedavg", {"runs": 1, "kills": 2}, "run 1: differs: rounds.jsonl")
    call.save()
    page = (tmp_path / "README.md").read_text()
    assert "**Something is wrong**" in page
    assert "| fedavg | 2 | 5 | 0 | 1 |" in page
    assert "- kills, fedavg: run 1: differs: rounds.jsonl" in page
    assert drill.Drill(tmp_path).results["kills"]["fedavg"]["kills"] == 5, "it adds up"


@pytest.mark.parametrize(("code", "bad"), [(0, 0), (1, 1)])
def test_hostile_messages_are_counted(tmp_path, monkeypatch, code, bad):
    fuzz = f"import sys\nprint('9 messages, 1 s')\nprint('1,234 messages, 2 s')\nsys.exit({code})"
    (tmp_path / "fuzz.py").write_text(fuzz)
    for name, value in {
        "RESULTS": tmp_path / "results.json",
        "FOLDER": tmp_path,
        "PAGE": tmp_path / "README.md",
        "FUZZ": tmp_path / "fuzz.py",
        "FLOWER": Path(sys.executable),
    }.items():
        monkeypatch.setattr(drill, name, value)
    call = drill.Drill(tmp_path)
    call.fuzz(time.monotonic() + 0.01)
    assert f"| hostile messages (`make fuzz`) | 1234 | {bad} |" in drill.page(call.results)
    assert len(call.results["bad"]) == bad


@pytest.mark.parametrize("recipe", shipped_recipes())
def test_every_shipped_recipe_can_be_drilled(recipe):
    assert small(recipe)["run"]["rounds"] == SMALL["run.rounds"]
