"""The rooms of the package: the import contract names every one of them, and no outside document
is referred to.
"""

from __future__ import annotations

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
