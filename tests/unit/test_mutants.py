"""`make mutants`: which changes it makes, that it tells killed from alive, what it keeps."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import mutant_results
import mutant_shop
from mutant_tests import ROOMS, ROOT, files, played_by
from mutants import everything, todo_of
from mutations import digest, mutants_of

CODE = '''"""A room with 1 thing."""
import numpy as np

def f(x: int = 3) -> float:
    """Twice 2."""
    if x < 2 and not x == 9:
        raise ValueError(x + 1)
    logger.warning("%d", x + 1)
    said = f"{x + 1} things"
    while x > 5:
        x -= 1
        print(said)
    return x * 2
'''


def test_every_change_is_made_once_and_words_are_left_alone():
    found = [mutant.what for mutant in mutants_of("room.py", CODE)]
    assert found == [
        "3  ->  4",
        "x < 2 and not x == 9  ->  (x < 2 or not x == 9)",
        "x < 2  ->  x <= 2",
        "2  ->  3",
        "not x == 9  ->  (x == 9)",
        "x == 9  ->  x != 9",
        "9  ->  10",
        "x > 5  ->  x >= 5",
        "5  ->  6",
        "x -= 1  ->  pass",
        "1  ->  2",
        "print(said)  ->  pass",
        "return x * 2  ->  return None",
        "x * 2  ->  (x / 2)",
        "2  ->  3",
    ]


def test_a_change_keeps_its_name_and_place_when_the_file_moves_around_it():
    before = mutants_of("room.py", CODE)
    after = mutants_of("room.py", "# a comment with Greek: τ\n\n" + CODE)
    assert [m.id for m in before] == [m.id for m in after]
    assert len({m.id for m in before}) == len(before)
    assert [m.line + 2 for m in before] == [m.line for m in after]
    times = next(m for m in after if m.what == "x * 2  ->  (x / 2)")
    assert times.applied("# a comment with Greek: τ\n\n" + CODE).endswith("return (x / 2)\n")


def test_the_sample_is_fixed_and_covers_every_room():
    order = everything(0)
    assert [m.id for m in everything(0)] == [m.id for m in order]
    assert [m.id for m in everything(1)] != [m.id for m in order]
    assert {m.file for m in order} <= {str(file.relative_to(ROOT)) for file in files()}
    rooms = {m.file.removeprefix("src/fedskew/").split("/")[0] for m in order[:300]}
    assert {room.split("/")[0] for room in ROOMS} <= rooms


def test_every_file_has_tests_and_they_exist():
    for file in files():
        tests = played_by(str(file.relative_to(ROOT)))
        assert len(tests) > 1
        assert all((ROOT / test).exists() for test in tests)
    listed = [test for tests in ROOMS.values() for test in tests]
    assert all((ROOT / test).exists() for test in listed)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """One function and one test of it."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "room.py").write_text(
        "def f(x):\n    while x > 5:\n        x -= 1\n    return x + (x * 0)\n"
    )
    (tmp_path / "test_room.py").write_text(
        "import room\n\ndef test():\n    assert room.f(7) == 5\n"
    )
    monkeypatch.setattr(mutant_shop, "CPU_SECONDS", 6)  # pytest itself takes 1 to 3
    return tmp_path


def test_killed_alive_and_hanging_are_told_apart(shop):
    text = (shop / "src" / "room.py").read_text()
    fates = {}
    for mutant in mutants_of("src/room.py", text):
        if mutant.what in ("5  ->  6", "x -= 1  ->  pass"):
            fates[mutant.what] = mutant_shop.play(mutant, shop, ["test_room.py"]).killed_by
        assert (shop / "src" / "room.py").read_text() == text
    assert fates.pop("x -= 1  ->  pass") == "ended by signal 9"
    assert fates == {"5  ->  6": "test_room.py::test"}
    assert mutant_shop.run_tests(shop, ["test_room.py"]).killed_by == ""
    with pytest.raises(RuntimeError, match="pytest ended with 4"):
        mutant_shop.run_tests(shop, ["test_nowhere.py"])


def test_results_are_kept_by_the_text_of_their_file_and_arguments_by_the_line(
    tmp_path, monkeypatch
):
    for name in ("RESULTS", "PAGE", "EQUIVALENT", "FOLDER"):
        monkeypatch.setattr(mutant_results, name, tmp_path / name.lower())
    monkeypatch.setattr(mutant_results, "ROOT", tmp_path)
    monkeypatch.setattr(mutant_results, "FOLDER", tmp_path)
    (tmp_path / "equivalent").write_text(
        '[[mutant]]\nfile = "room.py"\ncode = "x -= 1"\nchange = "1  ->  2"\nwhy = "a reason"\n'
    )
    (tmp_path / "room.py").write_text(CODE)
    sample = mutants_of("room.py", CODE)[7:12]
    fates = ["", "test_a", "test_b", "", "test_c"]
    results = {
        m.id: mutant_results.result_of(m, fate, 2.0, digest(CODE))
        for m, fate in zip(sample, fates, strict=True)
    }
    mutant_results.write_results(results, sample, 99)
    page = (tmp_path / "page").read_text()
    assert "5 sampled of 99 possible, 5 played" in page
    assert "3 of the other 4 were killed: 75.0%" in page
    assert "- `room.py:10` `x > 5  ->  x >= 5`\n" in page
    assert "- `room.py:11` `1  ->  2`: a reason\n" in page
    assert mutant_results.read_results() == json.loads((tmp_path / "results").read_text())
    known = mutant_results.read_results()
    assert todo_of(sample, known, survivors=False) == []
    assert [m.what for m in todo_of(sample, known, survivors=True)] == [
        "x > 5  ->  x >= 5",
        "1  ->  2",
    ]
    (tmp_path / "room.py").write_text(CODE + "\n")
    assert mutant_results.read_results() == {}
