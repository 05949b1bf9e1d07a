"""The rooms of the package: the import contract names every one of them, and no outside document
is referred to.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "fedskew"


def test_every_top_level_name_has_its_layer():
    """A room that the contract does not know could be imported from anywhere."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = contracts["contracts"][0]["layers"]
    named = {name.strip().removeprefix("fedskew.") for line in layers for name in line.split("|")}
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert named == modules | rooms
    assert len(layers) <= 15


def test_the_walk_of_a_run_names_files_that_exist_each_once():
    text = (ROOT / "docs" / "architecture.md").read_text()
    walk = text.partition("## The walk of a run")[2].partition("\n## ")[0]
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", walk)
    assert [name for name in named if not (PACKAGE / name).is_file()] == []
    assert [name for name in named if named.count(name) > 1] == []
    assert len(named) > 30


def test_every_room_is_explained_and_lists_its_files():
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("## The rooms")[2].partition("\n## ")[0]
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    explained = {
        name for cell in re.findall(r"^\| `([^`]+)`", table, re.M) for name in cell.split()
    }
    assert {name.strip("/") for name in explained} == rooms


def test_how_to_add_names_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition("## How to add")[2].partition("\n## ")[0]
    named = re.findall(r"`(src/fedskew/[\w/.]+)`", section)
    assert [name for name in named if not (ROOT / name).exists()] == []
    for thing in (
        "dataset", "partition", "signal", "distance", "selection rule", "procedure", "aggregation",
        "local objective", "clock model", "report figure", "command",
    ):  # fmt: skip
        assert f"| {thing} |" in section, thing


def test_nothing_refers_to_a_document_outside_the_repository():
    """METHODS and DESIGN were notes outside of it; docs/methods.md is ours."""
    outside = re.compile(r"(?<![\w.])METHODS,? (?:sections? )?\d|shared/METHODS|DESIGN\.md")
    mine = ("tests/unit/test_layout.py", "tests/unit/test_docs_methods.py")
    places = [path for top in ("src", "tests", "docs", "evidence", "benchmarks") for path in
              (ROOT / top).rglob("*")]  # fmt: skip
    texts = [*places, *ROOT.glob("*.md"), ROOT / "Makefile"]
    suffixes = {"", ".py", ".md", ".toml", ".js", ".css", ".html", ".in"}
    found = [
        str(path.relative_to(ROOT))
        for path in texts
        if path.is_file() and path.suffix in suffixes and str(path.relative_to(ROOT)) not in mine
        if outside.search(path.read_text(errors="replace"))
    ]
    assert found == []
