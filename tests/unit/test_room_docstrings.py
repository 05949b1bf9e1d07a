"""The list of files at the head of a room names every file of the room, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import fedskew

PACKAGE = Path(fedskew.__file__).parent
ROOMS = (
    "accounting",
    "advice",
    "cli/flower",
    "compare",
    "deploy",
    "experiment",
    "labels",
    "loop",
    "report",
    "report/page",
    "runtime",
    "runtime/flower",
    "runtime/local",
)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_names_its_files(room):
    folder = PACKAGE / room
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    named = re.findall(r"^``([a-z_0-9]+)(?:\.py)?``  ", docstring, re.M)
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    folders = {path.parent.name for path in folder.glob("*/__init__.py")}
    scripts = {path.parent.name for path in folder.glob("*/main.js")}
    assert sorted(named) == sorted(files | folders | scripts)
