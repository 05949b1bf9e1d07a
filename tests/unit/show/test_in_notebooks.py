"""What a person sees in a notebook, and that the notebooks that ship still run.

Cells are executed by a few lines here: they are plain Python, so no kernel and no new dependency
is needed; what a kernel would add (messages, threads) is not what the notebooks are about.
"""

from __future__ import annotations

import ast
import json
import sys
import types
from pathlib import Path
from xml.dom import minidom

import pytest
from played import write_run

import fedskew
from fedskew import Comparison, Run

NOTEBOOKS = sorted((Path(__file__).parents[3] / "docs" / "notebooks").glob("*.ipynb"))


def parsed(html: str) -> minidom.Document:
    """Well-formed, so that nothing swallows the rest of a notebook."""
    return minidom.parseString(f"<root>{html}</root>".replace("&#9632;", "#"))


def test_a_run_is_short_and_has_a_table_and_a_curve(tmp_path):
    run = Run.read(write_run(tmp_path / "a", "<b>evil</b> & 'co'", names=None))
    assert len(repr(run)) < 100
    html = parsed(run._repr_html_())
    assert len(html.getElementsByTagName("polyline")) == 1
    assert "final accuracy" in run._repr_html_()
    assert "<b>evil" not in run._repr_html_()
    assert len(run._repr_html_()) < 20_000


def test_a_run_that_goes_on_is_shown_too(tmp_path):
    run = Run.read(write_run(tmp_path / "a", until=3))
    assert "going on" in run._repr_html_()
    assert len(parsed(run._repr_html_()).getElementsByTagName("polyline")) == 1
    assert "no run is finished" in Comparison.of([run])._repr_html_()


def test_a_comparison_is_short_and_has_a_line_per_method(tmp_path):
    names = ("fedavg", "fedlecc", "bacsa")
    for name in names:
        for seed in range(5):
            rate = {"lr": 0.1 + names.index(name)}  # what tells their recipes apart
            write_run(tmp_path / f"{name}-{seed}", name, seed, rounds=30, local=rate)
    found = Comparison.read(tmp_path)
    assert repr(found) == "Comparison(bacsa, fedavg, fedlecc; 15 runs)"
    html = parsed(found._repr_html_())
    assert len(html.getElementsByTagName("polyline")) == 3
    assert len(html.getElementsByTagName("tr")) >= 4
    assert "±" in found._repr_html_()
    assert "final accuracy" in found._repr_html_()


# ---------------------------------------------------------------- the bar


@pytest.fixture
def kernel(monkeypatch):
    """A stand-in for IPython in a notebook: remembers what was displayed."""
    shown: list[str] = []

    class Handle:
        def update(self, content):
            shown.append(content)

    def display(content, display_id=False):
        shown.append(content)
        return Handle()

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.HTML, ipython.display.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return shown


def test_progress_in_a_notebook_is_a_bar(kernel):
    pytest.importorskip("torch")
    rounds = []
    fedskew.run("fedavg", settings={"run.rounds": 2}, workers=1, on_round=rounds.append)
    assert len(rounds) == 3
    assert "<progress value='2' max='2'>" in kernel[-2]
    assert "accuracy 0." in kernel[-2]
    assert kernel[-1] == ""  # gone at the end


def test_elsewhere_nothing_is_shown(capsys):
    pytest.importorskip("torch")
    fedskew.run("fedavg", settings={"run.rounds": 0}, workers=1)
    assert capsys.readouterr() == ("", "")


# ---------------------------------------------------------------- the notebooks


def cells_of(path: Path) -> list[str]:
    cells = json.loads(path.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def execute(source: str, names: dict) -> object:
    """Run a cell; its value is that of its last line, as in a notebook."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    values = [execute(cell, names) for cell in cells_of(path)]
    assert any(hasattr(value, "_repr_html_") for value in values)
    for value in values:
        if isinstance(value, Run | Comparison):
            parsed(value._repr_html_())


def test_two_notebooks_ship_without_results_of_somebodys_machine():
    assert len(NOTEBOOKS) == 2
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        assert all(not cell.get("outputs") for cell in cells), path
        assert cells[0]["cell_type"] == "markdown"
