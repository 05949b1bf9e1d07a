"""docs/methods.md has a heading for every section the repository refers to, names everything that
is registered or shipped, and points to files and tests that exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedskew.recipe import REGISTRIES, shipped_recipes

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "methods.md"
PLACES = ("src", "tests", "evidence", "benchmarks", "docs", "*.md", "Makefile")
SUFFIXES = {"", ".js", ".md", ".py", ".toml", ".txt"}
GAP = r"[ \t]*(?:\n[ \t#*/>|-]*)?"  # a reference may be broken over two lines of a comment
NUMBER = r"\d{1,2}(?:\.\d{1,2})?(?![\w%]|\.\d)"
# METHODS 4.6 | METHODS section 12 | methods.md 6.5, 9.2 and 9.3 | METHODS 2.1-2.4
REFERENCE = re.compile(
    rf"(?:METHODS|methods\.md){GAP} ?(?:sections?{GAP} ?)?"
    rf"({NUMBER}(?:{GAP} ?(?:,|;|and|to|-|–){GAP} ?{NUMBER})*)"
)
RANGE = re.compile(r"(\d+)\.(\d+)\s*(?:-|–|to)\s*\1\.(\d+)")
HEADING = re.compile(r"^#{2,3} (\d+(?:\.\d+)?)\.? (.+)$", re.MULTILINE)


def sections_in(text: str) -> Iterator[str]:
    """Every section number that a text refers to."""
    for found in REFERENCE.findall(text):
        for chapter, first, last in RANGE.findall(found):
            yield from (f"{chapter}.{n}" for n in range(int(first), int(last) + 1))
        yield from re.findall(NUMBER, found)


def text_files() -> Iterator[Path]:
    for place in PLACES:
        found = ROOT / place
        yield from found.rglob("*") if found.is_dir() else ROOT.glob(place)


def test_what_a_reference_looks_like() -> None:
    text = """METHODS 4.6, and (METHODS
    9.1). METHODS section 12; METHODS sections 1.7, 2 and 11. methods.md 6.5, 9.2; METHODS 2.9-2.11
    # see docs/methods.md
    # 8.3. But not METHODS' 0.101, METHODS: .62 nor METHODS 1.552 s."""
    expected = "4.6 9.1 12 1.7 2 11 6.5 9.2 2.9 2.10 2.11 2.9 2.11 8.3"
    assert " ".join(sections_in(text)) == expected


def test_every_section_that_is_referred_to_has_a_heading() -> None:
    headings = {number for number, _ in HEADING.findall(PAGE.read_text())}
    missing: dict[str, list[str]] = {}
    seen = 0
    for path in text_files():
        if not path.is_file() or path.suffix not in SUFFIXES or path == Path(__file__).resolve():
            continue
        for number in sections_in(path.read_text(errors="replace")):
            seen += 1
            if number not in headings:
                missing.setdefault(number, []).append(str(path.relative_to(ROOT)))
    assert not missing
    assert seen > 200, "references are no longer found: has their form changed?"


def test_no_heading_comes_twice() -> None:
    numbers = [number for number, _ in HEADING.findall(PAGE.read_text())]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("stage", [*REGISTRIES, "recipe"])
def test_everything_registered_or_shipped_is_named(stage: str) -> None:
    page = PAGE.read_text()
    names = shipped_recipes() if stage == "recipe" else REGISTRIES[stage]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_files_tests_and_links_exist() -> None:
    page = PAGE.read_text()
    files = set(re.findall(r"`([\w/]+/(?:\w+\.py)?)`", page))
    lost = [f for f in files if not ((ROOT / "src/fedskew" / f).exists() or (ROOT / f).exists())]
    for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page):
        if f"def {name}(" not in (ROOT / file).read_text():
            lost.append(f"{file}::{name}")
    anchors = {_anchor(title) for title in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}
    for link in re.findall(r"\]\(([^)\s]+)\)", page):
        known = link[1:] in anchors if link[0] == "#" else (PAGE.parent / link).exists()
        lost += [] if known else [link]
    assert lost == []


def _anchor(title: str) -> str:
    """The anchor GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
