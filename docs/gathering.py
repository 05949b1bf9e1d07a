"""Pages of the site that are written elsewhere: studies, the project's own pages, notebooks, and
the reference of commands and names. All go into one folder, made anew with every build.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from reference_pages import commands_page, names_page

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
GATHERED = DOCS / "gathered"
PROJECT = ("CHANGELOG", "CONTRIBUTING", "SECURITY")
STUDIES = "\n```{toctree}\n:glob:\n:hidden:\n\nevidence/*\n```\n"
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")


def gather(folder: Path = GATHERED) -> None:
    """Write every gathered page below the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for source, page in pages().items():
        _write(folder / page.relative_to(GATHERED), relinked(_text_of(source), source, page))
    with (folder / "evidence.md").open("a", encoding="utf8") as index:
        index.write(STUDIES)
    _write(folder / "reference" / "commands.md", commands_page())
    _write(folder / "reference" / "names.md", names_page())


def pages() -> dict[Path, Path]:
    """Every file outside of docs/ that is a page of the site -> where it is put; and notebooks."""
    found = {ROOT / "evidence" / "README.md": GATHERED / "evidence.md"}
    for study in sorted((ROOT / "evidence").glob("*/README.md")):
        found[study] = GATHERED / "evidence" / f"{study.parent.name}.md"
    for name in PROJECT:
        found[ROOT / f"{name}.md"] = GATHERED / "project" / f"{name.lower()}.md"
    for notebook in sorted((DOCS / "notebooks").glob("*.ipynb")):
        found[notebook] = GATHERED / "notebooks" / f"{notebook.stem}.md"
    return found


def relinked(text: str, source: Path, page: Path) -> str:
    """The text of ``source`` as it must stand at ``page``: links to files that are pages here
    go there; to other files of the repository there is no way from the site, so their names stay.
    """
    moved = pages() | {ROOT / "README.md": DOCS / "index.md"}

    def at_page(match: re.Match[str]) -> str:
        link, anchor = match[1], match[2] or ""
        if re.match(r"[a-z]+:", link):
            return match[0]
        target = (source.parent / link).resolve()
        return os.path.relpath(moved.get(target, target), page.parent) + anchor

    return _without_dead_ends(LINK.sub(at_page, text), page)


def _without_dead_ends(text: str, page: Path) -> str:
    """Links to files that are neither pages nor pictures, as plain text."""

    def kept(match: re.Match[str]) -> str:
        words, link = match[1], match[2].partition("#")[0]
        shown = not link or ":" in link or link.endswith((".md", ".png", ".svg"))
        inside = shown and (":" in link or _in_site((page.parent / link).resolve()))
        return match[0] if inside else words

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", kept, text)


def _in_site(path: Path) -> bool:
    return path.is_relative_to(DOCS) or path == DOCS


def _text_of(source: Path) -> str:
    text = source.read_text(encoding="utf8")
    return markdown_of(text) if source.suffix == ".ipynb" else text


def markdown_of(notebook: str) -> str:
    """The cells of a notebook as Markdown: texts as they are, code in fences, without output."""
    cells = json.loads(notebook)["cells"]
    parts = [("".join(cell["source"]).strip(), cell["cell_type"]) for cell in cells]
    return "\n\n".join(
        f"```python\n{text}\n```" if kind == "code" else text for text, kind in parts if text
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf8")
