"""The site hangs together without being built: every page has its place, every link its target, and
pages gathered from elsewhere are mended. `make docs` checks the same and more, with Sphinx.
"""

from __future__ import annotations

import json
import re
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
from pages import DOCS, FENCE, ROOT, SESSIONS, all_pages

sys.path.append(str(DOCS))
import gathering

PAGES = [*all_pages(), *(DOCS / name for name in SESSIONS if (DOCS / name).is_file())]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def places() -> list[str]:
    """Every line of the navigation: pages, and patterns for pages still to come."""
    toctrees = re.findall(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text(), re.DOTALL)
    lines = [line for tree in toctrees for line in tree.splitlines()]
    return [line for line in lines if line and not line.startswith(":")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_page_has_a_place(page: Path) -> None:
    name = page.relative_to(DOCS).with_suffix("").as_posix()
    assert name == "index" or any(fnmatch(name, place) for place in places())


def test_every_place_has_a_page_or_waits_for_one() -> None:
    made = {path.relative_to(DOCS).as_posix() for path in gathering.pages().values()}
    made |= {f"gathered/reference/{name}.md" for name in ("commands", "names")}
    lost = [p for p in places() if "*" not in p and f"{p}.md" not in made]
    assert [place for place in lost if not (DOCS / f"{place}.md").is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_link_has_a_target(page: Path) -> None:
    made = set(gathering.pages().values()) | {
        DOCS / "gathered" / "reference" / f"{name}.md" for name in ("commands", "names")
    }
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        target, _, anchor = link.partition("#")
        if ":" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        assert path in made or path.exists(), link
        if anchor and path.is_file():
            assert anchor in anchors_of(path.read_text()), link


def anchors_of(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_of_gathered_pages_lead_to_pages_of_the_site() -> None:
    source, page = ROOT / "CONTRIBUTING.md", DOCS / "gathered" / "project" / "contributing.md"
    text = "[a](docs/methods.md#12) [b](evidence/trust/README.md) [c](LICENSE) [d](https://x.org)"
    assert gathering.relinked(text, source, page) == (
        "[a](../../methods.md#12) [b](../evidence/trust.md) c [d](https://x.org)"
    )


def test_pictures_of_studies_stay_where_they_are() -> None:
    source = ROOT / "evidence" / "hostile" / "README.md"
    page = DOCS / "gathered" / "evidence" / "hostile.md"
    found = gathering.relinked("![a](hostile.png)", source, page)
    assert found == "![a](../../../evidence/hostile/hostile.png)"


def test_a_notebook_becomes_a_page() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# A first\n", "look"]},
        {"cell_type": "code", "source": ["import fedskew\n"], "outputs": ["much"]},
        {"cell_type": "code", "source": []},
    ]
    page = gathering.markdown_of(json.dumps({"cells": cells}))
    assert page == "# A first\nlook\n\n```python\nimport fedskew\n```"
