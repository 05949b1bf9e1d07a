"""A study is made cell by cell: killed in the middle it goes on, and gives the same results; what
has changed since is made again, and nothing else.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedskew.cli.studies import make_study
from fedskew.errors import StudyError
from fedskew.evidence import making, rows
from fedskew.evidence.cells import cells_of
from fedskew.evidence.making import CellsFailed, make
from fedskew.evidence.page import page_text
from fedskew.evidence.results import read_results, state_of, write_results
from fedskew.evidence.study import read_study

MEASURED = """
title = "Counted"
summary = "nothing is trained"
[[grid]]
measure = "measure.py:count"
seeds = [0, 1]
axes.step = { set = "measure.step", values = [1, 2] }
[[page]]
table = { rows = ["step"], columns = [{ figure = "number", format = ".1f" }] }
"""
MEASURE = """
from pathlib import Path
from types import SimpleNamespace

def count(cell):
    played = Path(__file__).with_name("played.txt")
    played.write_text((played.read_text() if played.exists() else "") + cell.title + "\\n")
    if cell.options["step"] == 2 and Path(__file__).with_name("fail").exists():
        raise ValueError("broken on purpose")
    return {"number": cell.options["step"] * 10 + cell.seed}
"""


@pytest.fixture
def counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "evidence" / "counted"
    folder.mkdir(parents=True)
    (folder / "study.toml").write_text(MEASURED)
    (folder / "measure.py").write_text(MEASURE)
    return folder


def played(folder: Path) -> list[str]:
    file = folder / "played.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return lines


def plain(results):
    return [(cell.labels, cell.seed, list(cell.rows)) for cell in results.cells]


def test_results_come_in_the_order_of_the_study_and_are_read_back(counted):
    study = read_study(counted)
    results = make(study)
    assert [cell.rows[0]["number"] for cell in results.cells] == [10, 11, 20, 21]
    write_results(counted / "results.json", results)
    again = read_results(counted / "results.json")
    assert again is not None
    assert plain(again) == plain(results)
    assert again.makers[0]["version"]
    write_results(counted / "again.json", again)
    assert (counted / "again.json").read_bytes() == (counted / "results.json").read_bytes()
    page = page_text(study, results, state_of(cells_of(study), results))
    assert "| 1 | 10.5 ± 6.4 |" in page
    assert "older" not in page


def test_what_is_there_is_kept(counted):
    study = read_study(counted)
    first = make(study)
    assert len(played(counted)) == 4
    assert plain(make(study)) == plain(first)  # cells on disk
    assert plain(make(study, first, work=Path("elsewhere"))) == plain(first)  # cells in results
    assert played(counted) == []
    make(study, first, again=True)
    assert len(played(counted)) == 4


def test_more_seeds_are_added_to_what_is_there(counted):
    first = make(read_study(counted))
    played(counted)
    text = MEASURED.replace("seeds = [0, 1]", "seeds = [0, 1, 2]")
    (counted / "study.toml").write_text(text)
    study = read_study(counted)
    state = state_of(cells_of(study), first)
    assert (len(state.current), len(state.missing)) == (4, 2)
    assert "**Not complete.** 2 of 6 cells are missing." in page_text(study, first, state)
    make(study, first)
    assert sorted(played(counted)) == ["1, seed 2", "2, seed 2"]


def test_a_study_can_be_made_in_pieces(counted, monkeypatch):
    """After so many minutes no cell begins; the results hold what there is, older cells too."""
    study = read_study(counted)
    clock = iter(range(100))  # every look at it takes a second
    monkeypatch.setattr(making, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    piece = make(study, minutes=2.5 / 60)
    assert [cell.rows[0]["number"] for cell in piece.cells] == [10, 20]
    state = state_of(cells_of(study), piece)
    assert "**Not complete.** 2 of 4 cells are missing." in page_text(study, piece, state)
    played(counted)
    monkeypatch.undo()
    monkeypatch.chdir(counted.parent.parent)
    whole = make(study, piece, work=Path("another machine"))
    assert played(counted) == ["1, seed 1", "2, seed 1"]
    assert [cell.rows[0]["number"] for cell in whole.cells] == [10, 11, 20, 21]
    (counted / "measure.py").write_text(MEASURE.replace("* 10", "* 100"))
    assert plain(make(study, whole, minutes=0)) == plain(whole)
    assert played(counted) == []


def test_a_piece_is_not_played_again_from_the_beginning(counted):
    with pytest.raises(StudyError, match="not both"):
        make(read_study(counted), again=True, minutes=5)


def test_a_cell_that_fails_does_not_stop_the_others(counted):
    (counted / "fail").touch()
    study = read_study(counted)
    failed = r"2 of 4 cells failed; the first: 2, seed 0: ValueError"
    with pytest.raises(CellsFailed, match=failed) as caught:
        make(study)
    assert [cell.rows[0]["number"] for cell in caught.value.results.cells] == [10, 11]
    with pytest.raises(StudyError, match=r"2 of 4 cells failed"):
        make_study(
            counted, None, data_folder="", workers=1, again=False, minutes=9.0, as_json=False,
            quiet=True,
        )  # fmt: skip
    kept = read_results(counted / "results.json")  # what the others gave is written all the same
    assert kept is not None
    assert [cell.rows[0]["number"] for cell in kept.cells] == [10, 11]
    played(counted)
    (counted / "fail").unlink()
    make(study)
    assert played(counted) == ["2, seed 0", "2, seed 1"]


def test_a_changed_measurement_makes_the_page_older_until_it_is_made_again(counted):
    study = read_study(counted)
    results = make(study)
    comment = MEASURE.replace("    played = Path", "    # a remark\n    played = Path")
    (counted / "measure.py").write_text(comment)
    assert state_of(cells_of(study), results).is_current
    (counted / "measure.py").write_text(MEASURE.replace("* 10", "* 100"))
    state = state_of(cells_of(study), results)
    assert (len(state.older), state.changed) == (4, ["measure.py"])
    page = page_text(study, results, state)
    assert "> **Made with an older version**: 4 of 4 cells. Code or recipes that decide" in page
    new = make(study, results)
    assert [cell.rows[0]["number"] for cell in new.cells] == [100, 101, 200, 201]
    assert state_of(cells_of(study), new).is_current


def test_a_changed_recipe_makes_only_its_cells_older(counted):
    results = make(read_study(counted))
    text = MEASURED.replace(
        'axes.step = { set = "measure.step", values = [1, 2] }',
        'axes.step = { 1 = { "measure.step" = 1 }, 2 = { "measure.step" = 2, "local.lr" = 0.5 } }',
    )
    (counted / "study.toml").write_text(text)
    state = state_of(cells_of(read_study(counted)), results)
    assert [cell.title for cell in state.older] == ["2, seed 0", "2, seed 1"]
    assert state.changed == ["recipe"]


def test_results_that_do_not_say_what_they_were_made_of_are_older(counted):
    study = read_study(counted)
    results = make(study)
    unsaid = [replace(cell, code=None, fingerprint=None) for cell in results.cells]
    state = state_of(cells_of(study), replace(results, cells=unsaid))
    assert (len(state.older), state.changed) == (4, [])
    assert "was not recorded then" in page_text(study, results, state)


def test_a_rule_in_a_file_of_the_users_counts_too(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    rule = tmp_path / "rule_of_mine.py"
    rule.write_text("def first(view, rng):\n    return list(range(view.budget))\n")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "study.toml").write_text(
        'title = "T"\nsummary = "s"\n[[grid]]\n'
        'set = { "selection.use" = "rule_of_mine:first", "run.rounds" = 1 }\n'
        'axes.m = { "5 of 20" = { "run.clients_per_round" = 5 } }\n'
    )
    study = read_study(folder)
    results = make(study)
    assert results.cells[0].rows[0]["never"] == 0.75  # 5 of 20
    rule.write_text("def first(view, rng):\n    return list(range(1, 1 + view.budget))\n")
    state = state_of(cells_of(study), results)
    assert (len(state.older), state.changed) == (1, ["rule_of_mine"])


@pytest.mark.parametrize(("seconds", "kept"), [(12.5, {"plateau": 12.5}), (None, {})])
def test_a_row_says_when_a_run_got_no_better(monkeypatch, seconds, kept):
    monkeypatch.setattr(rows, "scores_of", lambda run: {"final": 0.5})
    plateau = SimpleNamespace(seconds=seconds)
    run = SimpleNamespace(num_models=1, fairness=None, to_plateau=lambda: plateau)
    row = rows.row_of(run, keep=("plateau",), target=None)
    assert row == {"final": 0.5, "models": 1, **kept}


def test_a_row_counts_bytes_where_one_send_reaches_everybody(monkeypatch):
    monkeypatch.setattr(rows, "scores_of", lambda run: {"final": 0.5})
    sent = [SimpleNamespace(transfers=[SimpleNamespace(multicast=n)]) for n in (3, 4)]
    run = SimpleNamespace(num_models=1, fairness=None, rounds=sent)
    assert rows.row_of(run, keep=("multicast",), target=None)["multicast"] == 7


# ---------------------------------------------------------------- killed

RUNS = """
title = "Runs"
summary = "digits"
[set]
"run.rounds" = 25
"run.checkpoint_seconds" = 0.0
"local.epochs" = 1
[[grid]]
seeds = [0, 1]
keep = ["curve"]
[grid.axes.method]
"A" = { recipe = "fedavg" }
"B" = { recipe = "fedlecc" }
[[page]]
table = { rows = ["method"], columns = [{ figure = "final" }] }
"""
COMMAND = [sys.executable, "-m", "fedskew", "reproduce", "runs", "--workers", "1", "--quiet"]


def in_folder(folder: Path) -> Path:
    study = folder / "evidence" / "runs"
    study.mkdir(parents=True)
    (study / "study.toml").write_text(RUNS)
    return folder


def made(folder: Path) -> dict:
    """The results file without times; what is not there yet is played here."""
    study = read_study(folder / "evidence" / "runs")
    write_results(folder / "results.json", make(study, work=folder / "runs" / "evidence"))
    results = json.loads((folder / "results.json").read_text())
    for cell in results["cells"]:
        cell.pop("cpu_seconds")
    return results


def in_the_middle(folder: Path) -> bool:
    """One cell is finished, another has played some rounds."""
    done = list(folder.glob("runs/evidence/runs/*/*/cell.json"))
    rounds = [file.read_text().count("\n") for file in folder.glob("runs/**/rounds.jsonl")]
    return len(done) >= 1 and any(5 < count < 20 for count in rounds)


def test_killed_in_the_middle_it_goes_on_and_gives_the_same_results(tmp_path):
    pytest.importorskip("torch")
    one, other = in_folder(tmp_path / "killed"), in_folder(tmp_path / "whole")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen(COMMAND, cwd=one, env=env, start_new_session=True)
    end = time.monotonic() + 120
    while process.poll() is None and not in_the_middle(one) and time.monotonic() < end:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was finished before it could be killed"
    assert not (one / "evidence" / "runs" / "results.json").exists()
    finished = {f: f.stat().st_mtime_ns for f in one.glob("runs/evidence/runs/*/*/cell.json")}
    results = made(one)
    assert {f: f.stat().st_mtime_ns for f in finished} == finished  # not played again
    assert results == made(other)
    assert len(results["cells"]) == 4


def test_several_processes_give_the_same_results(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(in_folder(tmp_path))
    study = read_study(tmp_path / "evidence" / "runs")
    study = replace(study, grids=tuple(replace(g, top={"run.rounds": 2}) for g in study.grids))
    told = []
    two = make(study, workers=2, work=Path("two"), watch=told.append)
    assert plain(two) == plain(make(study, workers=1, work=Path("one")))
    ended = [now for now in told if now.seconds is not None]
    assert [now.done for now in ended] == [1, 2, 3, 4]
    assert ended[-1].left == 0.0
    assert all(cell.cpu_seconds and cell.cpu_seconds > 0 for cell in two.cells)


def test_several_processes_stop_in_time_too(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(in_folder(tmp_path))
    study = read_study(tmp_path / "evidence" / "runs")
    study = replace(study, grids=tuple(replace(g, top={"run.rounds": 2}) for g in study.grids))
    ended = []
    enough = lambda how: len(ended) > 0  # noqa: E731
    monkeypatch.setattr(making._How, "enough", enough)
    watch = lambda now: ended.append(now) if now.seconds is not None else None  # noqa: E731
    assert 1 <= len(make(study, workers=2, watch=watch).cells) <= 2
