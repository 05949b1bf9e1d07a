"""How Sphinx builds the site: `make docs` writes it to site/, read from files, without network.

Pages in Markdown lie beside this file. What is written elsewhere already (studies, commands, the
names a recipe may use, notebooks, the project's own pages) is gathered by gathering.py just before.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "src"))

from gathering import gather, relinked  # noqa: E402

from fedskew import __version__  # noqa: E402

PLACE = re.compile(r"^([\w/-]*\*)\n", re.MULTILINE)  # of a page, or of pages still to come

project = "fedskew"
author = "The fedskew maintainers"
copyright = f"2026, {author}. Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["figures", "notebooks"]

# Headings may be linked to down to this depth: methods.md has sections and subsections.
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_inline"]
highlight_language = "text"

autodoc_mock_imports = ["torch", "flwr"]
autodoc_typehints = "none"  # signatures in the source are readable; types twice are not
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
default_role = "code"

html_theme = "furo"
html_title = f"fedskew {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"top_of_page_buttons": []}


def setup(app: Any) -> None:
    """Write the gathered pages before Sphinx looks for its sources, and mend links as it reads."""
    gather()
    app.connect("source-read", _relink)


def _relink(app: Any, name: str, content: list[str]) -> None:
    """Links from pages of docs/ to files outside of it, such as a study, go to its page here."""
    if not name.startswith("gathered/"):
        page = HERE / f"{name}.md"
        content[0] = relinked(PLACE.sub(_filled, content[0]), page, page)


def _filled(place: re.Match[str]) -> str:
    """A pattern in a table of contents, if there are pages for it that are not listed by name."""
    found = [path.relative_to(HERE).with_suffix("") for path in HERE.glob(f"{place[1]}.md")]
    return place[0] if any(f"\n{page}\n" not in place.string for page in found) else ""
