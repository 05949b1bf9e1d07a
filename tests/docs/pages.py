"""The pages of the site, cut into what a test can act on: files, commands, Python, and texts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# gathered/ is made by the build of what lies elsewhere; notebooks have a test of their own
ELSEWHERE = ("gathered", "notebooks")
SESSIONS = ("flower.md", "operating.md")  # of real fleets, which tests/flower start
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)((?: {4}.*\n|\n)+)")
PROMPT = re.compile(r"^\w*\$ (.+)$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file it is saved as (if any), its text and what stands
    before it.
    """

    language: str
    file: str
    text: str
    before: str


@dataclass(frozen=True)
class Command:
    """A command line, and what the page shows of its output."""

    words: tuple[str, ...]
    shown: tuple[str, ...]


def all_pages() -> list[Path]:
    """Every page that can be typed in as it stands, from top to bottom."""
    found = sorted(DOCS.rglob("*.md"))
    return [
        page for page in found if page.relative_to(DOCS).parts[0] not in (*ELSEWHERE, *SESSIONS)
    ]


def blocks_of(text: str) -> list[Block]:
    """Every fenced block of a page, in order."""
    blocks, end = [], 0
    for found in FENCE.finditer(text):
        language, _, file = found[1].partition(" ")
        blocks.append(Block(language, file, found[2], text[end : found.start()]))
        end = found.end()
    return blocks


def commands_in(text: str) -> Iterator[Command]:
    """The commands after a prompt (``$``, ``server$``), each with the lines below it."""
    lines = text.replace("\\\n", " ").splitlines()
    starts = [n for n, line in enumerate(lines) if PROMPT.match(line)]
    for start, end in pairwise([*starts, len(lines)]):
        said = PROMPT.match(lines[start])
        assert said is not None
        yield Command(tuple(shlex.split(said[1], comments=True)), tuple(lines[start + 1 : end]))


def indented(text: str) -> list[str]:
    """Blocks that are code because they stand further right, as older pages have them."""
    found = INDENTED.findall(FENCE.sub("", text))
    return [re.sub(r"^ {4}", "", block, flags=re.M) for block in found]


def sessions(text: str) -> list[Command]:
    """Commands of a page that shows real sessions, in fences or indented, with a prompt or not."""
    shown = indented(text) + [
        block.text for block in blocks_of(text) if block.language not in ("python", "toml")
    ]
    prompted = [re.sub(r"^(?=fedskew )", "$ ", lines, flags=re.M) for lines in shown]
    return [command for lines in prompted for command in commands_in(lines)]
