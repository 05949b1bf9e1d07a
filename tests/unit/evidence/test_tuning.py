"""A grid that is tuned by another: the best label on other seeds, cell by cell, made first."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fedskew.errors import StudyError
from fedskew.evidence.making import make
from fedskew.evidence.results import state_of, write_results
from fedskew.evidence.study import read_study
from fedskew.evidence.tuning import cells_with

STUDY = """
title = "Tuned"
summary = "nothing is trained"
[axes.method]
a = { "measure.peak" = 0.1 }
b = { "measure.peak" = 0.3 }
[[grid]]
name = "tuning"
measure = "measure.py:hill"
seeds = [100, 101]
over = ["method", "lr", "place"]
axes.lr = { set = "measure.lr", values = [0.1, 0.2, 0.3] }
axes.place = { near = { "measure.noise" = 0.0 }, far = { "measure.noise" = 0.001 } }
[[grid]]
name = "main"
measure = "measure.py:hill"
seeds = [0, 1]
over = ["method", "size"]
axes.size = { small = { "measure.noise" = 0.0 }, large = { "measure.noise" = 0.5 } }
tuned = { grid = "tuning", axis = "lr" }
[scale.smoke]
seeds = [0]
[[page]]
table = { where = { grid = "main" }, rows = ["method"], columns = [{ figure = "lr" }] }
"""
MEASURE = """
import math
def hill(cell):
    o = cell.options
    if o["peak"] == 0.3 and o["lr"] == 0.1:
        return {"final": math.nan, "lr": o["lr"]}   # diverges
    return {"final": -abs(o["lr"] - o["peak"]) + o["noise"] * cell.seed, "lr": o["lr"]}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "evidence" / "tuned"
    place.mkdir(parents=True)
    (place / "study.toml").write_text(STUDY)
    (place / "measure.py").write_text(MEASURE)
    return place


def rates(results):
    main = [cell for cell in results.cells if cell.labels["grid"] == "main"]
    return {(c.labels["method"], c.labels["size"], c.seed): c.rows[0]["lr"] for c in main}


def test_nothing_is_chosen_by_a_piece_of_the_tuning(folder):
    """One of two seeds everywhere: every rate was tried as often as the others, but not as often as
    planned.
    """
    study, whole = read_study(folder), make(read_study(folder))
    tried = [cell for cell in whole.cells if cell.labels["grid"] == "tuning"]
    piece = replace(whole, cells=[cell for cell in tried if cell.seed == 100])
    assert all(cell.waits for cell in cells_with(study, piece) if cell.labels["grid"] == "main")
    all_of_it = replace(whole, cells=tried)
    assert not any(cell.waits for cell in cells_with(study, all_of_it))


def test_every_cell_gets_what_was_best_for_its_like_on_other_seeds(folder):
    results = make(read_study(folder))
    assert len(results.cells) == 2 * 3 * 2 * 2 + 2 * 2 * 2
    found = rates(results)
    assert {rate for (method, _, _), rate in found.items() if method == "a"} == {0.1}
    assert {rate for (method, _, _), rate in found.items() if method == "b"} == {0.3}
    assert state_of(cells_with(read_study(folder), results), results).is_current


def test_before_it_is_tuned_a_cell_waits_and_counts_as_missing(folder):
    study = read_study(folder)
    cells = cells_with(study, None)
    assert [cell.waits for cell in cells] == [cell.labels["grid"] == "main" for cell in cells]
    results = make(study)
    last = [cell for cell in results.cells if cell.labels["grid"] == "tuning"][-1]
    half = replace(results, cells=[cell for cell in results.cells if cell is not last])
    state = state_of(cells_with(study, half), half)
    assert len(state.missing) == 1 + 4, "method b is not chosen for as long as one try is missing"


def test_another_choice_makes_the_cells_again_and_no_others(folder):
    results = make(read_study(folder))
    (folder / "study.toml").write_text(
        STUDY.replace('axis = "lr" }', 'axis = "lr", best = "min" }')
    )
    study = read_study(folder)
    state = state_of(cells_with(study, results), results)
    assert {cell.labels["grid"] for cell in state.older} == {"main"}
    assert len(state.older) == 8
    again = make(study, results)
    assert set(rates(again).values()) == {0.3, 0.2}, "the worst; what diverges is never chosen"


def test_a_smaller_scale_still_tunes_on_other_seeds(folder):
    study = read_study(folder, "smoke")
    assert [(grid.name, grid.seeds) for grid in study.grids] == [("tuning", (100,)), ("main", (0,))]
    assert set(rates(make(study)).values()) == {0.1, 0.3}


def test_another_study_may_be_tuned_by_this_one(folder):
    write_results(folder / "results.json", make(read_study(folder)))
    other = folder.parent / "other"
    other.mkdir()
    text = STUDY.replace('axis = "lr" }', 'axis = "lr", study = "tuned" }')
    head, _, rest = text.partition("[[grid]]")
    (other / "study.toml").write_text(head + "[[grid]]" + rest.partition("[[grid]]")[2])
    (other / "measure.py").write_text(MEASURE)
    assert set(rates(make(read_study(other))).values()) == {0.1, 0.3}


def test_made_again_nothing_is_played_twice(folder):
    first = make(read_study(folder))
    seen = []
    make(read_study(folder), first, again=True, watch=lambda now: seen.append(now.title))
    assert len(seen) == len(set(seen)) == len(first.cells)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seeds = [100, 101]", "seeds = [1, 2]", r"seeds \[1\] are also those of grid tuning"),
        ('grid = "tuning", axis', 'grid = "tunning", axis', "there is no grid 'tunning'"),
        ('axis = "lr" }', 'axis = "rate" }', "has no axis 'rate'"),
        ('axis = "lr" }', 'axis = "lr", best = "most" }', "best = 'most'"),
        ('tuned = { grid = "tuning", axis = "lr" }', 'tuned = { grid = "tuning" }', "has no axis"),
    ],
)
def test_errors_say_what(folder, old, new, words):
    (folder / "study.toml").write_text(STUDY.replace(old, new))
    with pytest.raises(StudyError, match=words):
        make(read_study(folder))


def test_a_run_says_what_was_chosen_for_it(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "evidence" / "runs"
    place.mkdir(parents=True)
    (place / "study.toml").write_text(
        'title = "T"\nsummary = "s"\n[set]\n"run.rounds" = 1\n"data.clients" = 4\n'
        '[[grid]]\nname = "tuning"\nseeds = [9]\n'
        'axes.lr = { set = "local.lr", values = [0.0, 0.1] }\n'
        '[[grid]]\nname = "main"\nseeds = [0]\ntuned = { grid = "tuning", axis = "lr" }\n'
    )
    results = make(read_study(place))
    (main,) = [cell for cell in results.cells if cell.labels["grid"] == "main"]
    assert main.rows[0]["tuned"] == 0.1, "not to learn at all is worse"
    assert json.dumps(main.rows[0]["tuned"]) == "0.1"
