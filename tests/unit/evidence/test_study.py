"""What study.toml may say, and which cells it makes: methods of one grid share one federation."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedskew.errors import StudyError
from fedskew.evidence.cells import cells_of
from fedskew.evidence.study import find_studies, read_study

HEAD = 'title = "T"\nsummary = "s"\n'
GRID = """
[set]
"run.rounds" = 3
"local.lr" = 0.1
[[grid]]
seeds = [0, 1]
[grid.axes.method]
"A" = { recipe = "fedavg" }
"B" = { recipe = "fedlecc", "local.lr" = 0.2 }
[grid.axes.alpha]
low = { "partition.use" = "dirichlet", "partition.alpha" = 0.5 }
high = { "partition.use" = "dirichlet", "partition.alpha" = 5.0 }
[scale.smoke]
seeds = [7]
set = { "run.rounds" = 1, "local.lr" = 0.3 }
only = { alpha = ["low"] }
"""


def study(tmp_path: Path, text: str, scale: str | None = None, name: str = "tiny"):
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    (folder / "study.toml").write_text(HEAD + text, encoding="utf8")
    return read_study(folder, scale)


def refused(tmp_path: Path, text: str, scale: str | None = None) -> str:
    with pytest.raises(StudyError) as caught:
        cells_of(study(tmp_path, text, scale))
    return str(caught.value)


def test_cells_are_the_product_of_axes_and_seeds(tmp_path):
    cells = cells_of(study(tmp_path, GRID))
    found = [(c.labels["method"], c.labels["alpha"], c.seed) for c in cells]
    assert found == [(m, a, s) for m in "AB" for a in ("low", "high") for s in (0, 1)]
    assert [c.recipe["partition"]["alpha"] for c in cells] == [0.5, 0.5, 5.0, 5.0] * 2
    assert {c.recipe["selection"]["use"] for c in cells} == {"uniform", "fedlecc"}


def test_a_method_stands_above_shared_settings_and_the_scale_above_all(tmp_path):
    lrs = {c.labels["method"]: c.recipe["local"]["lr"] for c in cells_of(study(tmp_path, GRID))}
    assert lrs == {"A": 0.1, "B": 0.2}
    small = cells_of(study(tmp_path, GRID, "smoke"))
    assert {(c.labels["alpha"], c.seed) for c in small} == {("low", 7)}
    assert {(c.recipe["local"]["lr"], c.recipe["run"]["rounds"]) for c in small} == {(0.3, 1)}


def test_methods_share_the_federation_of_the_first(tmp_path):
    # haccs ships with device classes of its own; here the grid says which
    text = GRID.replace('recipe = "fedlecc"', 'recipe = "haccs"').replace(
        "[set]", '[set]\n"devices.classes" = "haccs"'
    )
    cells = cells_of(study(tmp_path, text))
    for table in ("data", "partition", "devices", "faults", "model"):
        assert len({str(c.recipe[table]) for c in cells if c.labels["alpha"] == "low"}) == 1, table


def test_two_methods_may_be_one_recipe(tmp_path):
    text = GRID.replace('{ recipe = "fedlecc", "local.lr" = 0.2 }', '{ recipe = "fedavg" }')
    assert [c.labels["method"] for c in cells_of(study(tmp_path, text))].count("B") == 4


def test_a_method_cannot_change_the_federation(tmp_path):
    text = GRID.replace('"local.lr" = 0.2', '"data.clients" = 5')
    assert "data.clients belongs to the federation" in refused(tmp_path, text)


def test_axes_of_the_study_and_lists_of_values(tmp_path):
    cells = cells_of(
        study(
            tmp_path,
            """
            [axes]
            lr = { set = "local.lr", values = [0.1, 0.2, 0.3] }
            [[grid]]
            name = "one"
            over = ["lr"]
            only = { lr = [0.1, 0.3] }
            labels = { data = "digits" }
            [[grid]]
            name = "two"
            over = ["lr"]
            """,
        )
    )
    assert [(c.labels["grid"], c.labels["lr"]) for c in cells] == [
        ("one", "0.1"), ("one", "0.3"), ("two", "0.1"), ("two", "0.2"), ("two", "0.3"),
    ]  # fmt: skip
    assert [c.recipe["local"]["lr"] for c in cells] == [0.1, 0.3, 0.1, 0.2, 0.3]
    assert cells[0].labels["data"] == "digits"


def test_options_of_a_measurement_are_not_settings_of_the_recipe(tmp_path):
    text = """
    [[grid]]
    measure = "measure.py:play"
    set = { "measure.noise" = 0.1, "run.rounds" = 4 }
    axes.noise = { "loud" = { "measure.noise" = 0.5 }, "as set" = {} }
    """
    loud, quiet = cells_of(study(tmp_path, text))
    assert (loud.options, quiet.options) == ({"noise": 0.5}, {"noise": 0.1})
    assert loud.recipe["run"]["rounds"] == 4
    assert loud.fingerprint != quiet.fingerprint


def test_where_the_data_lie_is_no_part_of_the_fingerprint(tmp_path):
    text = '[set]\n"data.use" = "acsincome"\n[[grid]]\n'
    (cell,) = cells_of(study(tmp_path, text))
    moved = cell.in_folder("/somewhere/else")
    assert moved.recipe["data"]["folder"] == "/somewhere/else"
    assert moved.fingerprint == cell.fingerprint
    assert cell.needed_folder == "acsincome"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[grid]]\nseed = [0]", "unknown entry 'seed'. Did you mean 'seeds'?"),
        ('[[grid]]\nseeds = "0-4"', "Give a list of numbers"),
        ('[[grid]]\nover = ["k"]\naxes.kk = { a = {} }', "there is no axis 'k'"),
        ("[[grid]]\naxes.k = { a = 3 }", "'a' is 3"),
        ('[[grid]]\nkeep = ["curves"]', "Did you mean 'curve'?"),
        ('[set]\n"local.lrr" = 1\n[[grid]]\n', "unknown option 'lrr'"),
        ('[[grid]]\naxes.m = { a = { recipe = "fedavgg" } }', "fedavgg"),
        ("[[grid]]\n[[grid]]\n", "Name the grids"),
        ("[[grid]]\n[[page]]\ntext = 'a'\ntable = {}", "exactly one"),
        ('title = "again"', "cannot be read as TOML"),
        ("", "has no grid"),
    ],
)
def test_errors_say_where_and_what(tmp_path, text, words):
    assert words in refused(tmp_path, text)


def test_unknown_scales_and_studies(tmp_path):
    assert "has no scale 'reduced'. It has: full, smoke" in refused(tmp_path, GRID, "reduced")
    assert "Did you mean 'smoke'?" in refused(tmp_path, GRID, "smok")
    assert find_studies(tmp_path) == ["tiny"]
    with pytest.raises(StudyError, match=r"does not exist\. Did you mean 'tiny'"):
        read_study(tmp_path / "tinny")
