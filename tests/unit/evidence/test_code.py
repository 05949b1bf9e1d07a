"""What makes a page older: code that decides the numbers, not comments, other methods or types."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedskew.evidence import code
from fedskew.evidence.cells import cells_of
from fedskew.evidence.study import read_study
from fedskew.recipe import REGISTRIES

FIRST = "from __future__ import annotations"  # a line of code that every file has
TWO = """
title = "T"
summary = "s"
[[grid]]
[grid.axes.method]
lecc = { recipe = "fedlecc" }
bacsa = { recipe = "bacsa" }
"""


@pytest.fixture
def cells(tmp_path):
    (tmp_path / "study.toml").write_text(TWO)
    return cells_of(read_study(tmp_path))


def changed(monkeypatch, file: str, old: str, new: str) -> None:
    """As if a file of the package said something else."""
    source = code.source_of

    def other(path: Path) -> str:
        text = source(path)
        if not path.as_posix().endswith(file):
            return text
        assert old in text
        return text.replace(old, new, 1)

    monkeypatch.setattr(code, "source_of", other)


def prints(cells):
    return [code.fingerprint_of(code.parts_of(code.roots_of(cell))) for cell in cells]


def difference(before, after):
    return {room for room in {**before, **after} if before.get(room) != after.get(room)}


def test_a_change_in_the_loop_makes_every_cell_older(cells, monkeypatch):
    before, parts = prints(cells), code.parts_of(code.roots_of(cells[0]))
    changed(monkeypatch, "fedskew/loop/federation.py", FIRST, "surprise = 1")
    assert all(a != b for a, b in zip(before, prints(cells), strict=True))
    assert difference(parts, code.parts_of(code.roots_of(cells[0]))) == {"loop"}


@pytest.mark.parametrize(
    ("file", "room"),
    [
        ("fedskew/selection/fedlecc.py", "selection.fedlecc"),
        ("fedskew/clustering/optics.py", "clustering.optics"),
        ("fedskew/distance/divergence.py", "distance.divergence"),
    ],
)
def test_a_change_in_a_stage_makes_those_older_that_use_it(cells, monkeypatch, file, room):
    (lecc, bacsa), parts = prints(cells), code.parts_of(code.roots_of(cells[0]))
    changed(monkeypatch, file, FIRST, "surprise = 1")
    now = prints(cells)
    assert (now[0] != lecc, now[1] == bacsa) == (True, True)
    assert difference(parts, code.parts_of(code.roots_of(cells[0]))) == {room}


@pytest.mark.parametrize(
    "file", ["runtime/local/step.py", "models/mlp.py", "data/partitions/dirichlet.py", "streams.py"]
)
def test_runtime_model_partition_and_streams_count(cells, monkeypatch, file):
    before = prints(cells)
    changed(monkeypatch, f"fedskew/{file}", FIRST, "surprise = 1")
    assert all(a != b for a, b in zip(before, prints(cells), strict=True))


@pytest.mark.parametrize("file", ["cli/main.py", "errors.py", "types/plan.py"])
def test_what_decides_no_number_does_not(cells, monkeypatch, file):
    before = prints(cells)
    changed(monkeypatch, f"fedskew/{file}", FIRST, "surprise = 1")
    assert prints(cells) == before


def test_comments_docstrings_and_line_breaks_do_not(cells, monkeypatch):
    before = prints(cells)
    changed(
        monkeypatch,
        "fedskew/loop/federation.py",
        FIRST,
        "# a thought\nfrom __future__ import annotations\n\n\n",
    )
    assert prints(cells) == before
    one = 'def f(a, b):\n    """Doc."""\n    return g(a, b)  # why\n'
    other = 'def f(\n    a,\n    b,\n):\n    """Another\n    doc.\n    """\n    return g(a, b)\n'
    assert code.bare(one) == code.bare(other)
    assert code.bare(one) != code.bare(one.replace("a, b)  #", "b, a)  #"))


def test_a_string_with_a_hash_is_code():
    assert code.bare('x = "# no comment"\n') == 'x="#nocomment"'


def test_every_stage_is_among_the_rooms_that_count():
    for stage, registry in REGISTRIES.items():
        modules = {rule.__module__ for rule in registry.values()}
        known = tuple(f"fedskew.{room}." for room in code.ROOMS)
        assert all(module.startswith(known) for module in modules), stage
