"""Every command and every snippet of the site does what the page says.

Each page is played from top to bottom in an empty folder: files are saved, commands typed, Python
executed in one namespace, and lines of output that the page shows must come out. On one core, so
that training stays in this process. What needs a fleet, a network or hours is only parsed
(``PARSED_ONLY`` says who runs it).
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import (
    DOCS,
    ROOT,
    SESSIONS,
    Block,
    all_pages,
    blocks_of,
    commands_in,
    indented,
    sessions,
)
from typing_in import agrees, parse, type_in

from fedskew.evidence.claims import read_claims
from fedskew.evidence.study import read_study
from fedskew.recipe import resolve

LANGUAGES = {"", "console", "python", "text", "toml"}
DIRECTIVES = ("{toctree}", "{eval-rst}")
PAGES = [str(page.relative_to(DOCS)) for page in all_pages()]


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder on one core; modules and paths of the page are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path / "data"))
    known, cores = set(sys.modules), os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield tmp_path
    os.sched_setaffinity(0, cores)
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_typed_in(name: str, reader: Path) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks_of((DOCS / name).read_text()):
        if block.language.startswith(DIRECTIVES):
            continue
        assert block.language in LANGUAGES, f"{name}: {block.language}?"
        _play(block, reader, names)


def _play(block: Block, folder: Path, names: dict[str, object]) -> None:
    if block.file:
        assert f"`{block.file}`" in block.before, f"{block.file}: the page does not name it"
        (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
        (folder / block.file).write_text(block.text)
    if block.language == "console":
        for command in commands_in(block.text):
            said = type_in(command)
            assert agrees(command.shown, said), f"{command}\n\n{said}"
    elif block.language == "python" and not block.file:
        exec(compile(block.text, "page", "exec"), names)
    elif block.language == "toml":
        _check_toml(block, folder)


def _check_toml(block: Block, folder: Path) -> None:
    """A recipe, whole or in part, a study, or claims."""
    if block.file.endswith("study.toml"):
        assert read_study((folder / block.file).parent).grids
    elif block.file == "claims.toml":
        assert read_claims(folder)
    elif not block.file:
        resolve(tomllib.loads(block.text))


@pytest.mark.parametrize("page", [*(f"docs/{name}" for name in SESSIONS), "README.md"])
def test_commands_of_pages_that_show_real_sessions_parse(page: str) -> None:
    if not (ROOT / page).is_file():
        pytest.skip(f"{page} is not written yet")
    text = (ROOT / page).read_text()
    commands = [one for one in sessions(text) if one.words[0] == "fedskew"]
    assert len(commands) > 5
    for command in commands:
        parse([word for word in command.words[1:] if word != "…"])
    for block in blocks_of(text):
        if block.language == "python":
            compile(block.text, page, "exec")


def test_what_is_shown_must_come_out() -> None:
    said = "seed       3\nfinal accuracy   0.91\nrecords in /tmp/x"
    assert agrees(("final accuracy 0.91", "…", "records in …"), said)
    assert not agrees(("records in …", "final accuracy 0.91"), said)
    assert not agrees(("final accuracy 0.92",), said)


def test_a_wrong_option_does_not_parse() -> None:
    parse(["flower", "up", "--nodes", "4"])
    with pytest.raises(Exception, match="no-such"):
        parse(["flower", "up", "--no-such"])
    with pytest.raises(Exception, match="uppp"):
        parse(["flower", "uppp"])


def test_texts_hide_no_commands() -> None:
    """What looks like a command or like Python must not stand in a block that nobody runs."""
    looks = ("$ ", "fedskew ", "import ", "from ", "[")
    for page in all_pages():
        text = page.read_text()
        idle = [block.text for block in blocks_of(text) if block.language in ("", "text")]
        lines = [line for block in idle + indented(text) for line in block.splitlines()]
        assert [line for line in lines if line.startswith(looks)] == [], page.name
