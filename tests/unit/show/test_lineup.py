"""Reports and figures made of a folder later show methods in the order and the colours of the page
that the comparison made.
"""

from __future__ import annotations

import re

import pytest
from played import recipe, write_run
from typer.testing import CliRunner

from fedskew.cli import main as cli
from fedskew.compare.comparison import Comparison
from fedskew.compare.contenders import Contender
from fedskew.compare.lineup import LINEUP, keep_lineup
from fedskew.errors import RunFolderError
from fedskew.recipe import fingerprint
from fedskew.report.figures.style import METHOD_COLOURS
from fedskew.report.page import page_html, payload_of

ORDER = ("zebra", "fedavg", "moth")


@pytest.fixture
def compared(tmp_path):
    for name in ORDER:
        for seed in (0, 1):
            write_run(tmp_path / name / f"seed-{seed}", name, seed, **options_of(name))
    labels = {"zebra": "the zebra", "fedavg": "fedavg", "moth": "moth"}
    keep_lineup(
        tmp_path, [Contender(labels[name], recipe(name, **options_of(name))) for name in ORDER]
    )
    return tmp_path


def options_of(name):
    """Recipes that differ in their name alone are one method."""
    return {"local": {"lr": 0.1 * len(name)}}


def labels_of(found):
    return [entry.label for entry in found.entries]


def test_a_folder_is_read_in_the_order_of_its_comparison(compared):
    assert labels_of(Comparison.read(compared)) == ["the zebra", "fedavg", "moth"]
    # what the comparison did not have comes after it; without a line-up names decide
    write_run(compared / "a-new" / "seed-0", "a-new")
    assert labels_of(Comparison.read(compared)) == ["the zebra", "fedavg", "moth", "a-new"]
    (compared / LINEUP).unlink()
    assert labels_of(Comparison.read(compared)) == ["a-new", "fedavg", "moth", "zebra"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"methods": [["a"]]}', "does not list methods"),
        ('{"methods": 7}', "does not list methods"),
        ("{half", "cannot be read"),
    ],
)
def test_a_damaged_line_up_is_an_error_with_a_remedy(compared, content, said):
    (compared / LINEUP).write_text(content)
    with pytest.raises(RunFolderError, match=rf"{LINEUP}.*{said}.*Remove the file"):
        Comparison.read(compared)


def test_a_flipped_letter_is_noticed(compared):
    path = compared / LINEUP
    path.write_text(path.read_text().replace("the zebra", "the debra"))
    with pytest.raises(RunFolderError, match="Remove the file"):
        Comparison.read(compared)


def test_figures_for_papers_have_the_order_and_the_colours_of_the_page(compared):
    pytest.importorskip("matplotlib")
    from matplotlib.colors import to_hex

    from fedskew.report.figures.paper import draw_curves, draw_ecdf

    found = Comparison.read(compared)
    page = page_html(payload_of(found))
    for draw in (draw_curves, draw_ecdf):
        lines = draw(found).axes[0].get_lines()
        assert [line.get_label() for line in lines] == labels_of(found)
        for number, line in enumerate(lines):
            (colour,) = re.findall(rf":root {{[^}}]*--c{number}: (#\w+);", page)
            assert to_hex(line.get_color()) == colour == METHOD_COLOURS[number]


def test_export_takes_the_baseline_of_a_report(compared, tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    out = tmp_path / "tables"
    arguments = ["export", str(compared), "--tables", str(out), "--baseline", "moth"]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    order = parquet.read_table(out / "scores.parquet").column("recipe").unique().to_pylist()
    assert order == ["moth", "the zebra", "fedavg"]


def test_the_line_up_is_found_by_what_runs_are_called_by(compared):
    run = Comparison.read(compared).entries[0].runs[0]
    assert run.fingerprint == fingerprint(recipe("zebra", **options_of("zebra")))
