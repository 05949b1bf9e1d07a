"""Template, style, scripts and data put together into one file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from fedskew.compare.comparison import Comparison
from fedskew.errors import DataError
from fedskew.experiment.figures import Resource
from fedskew.measure.payload import plain
from fedskew.report.figures.style import METHOD_COLOURS
from fedskew.report.page.payload import payload_of

PAGE = resources.files("fedskew") / "report" / "page"


def page_html(payload: Mapping[str, Any]) -> str:
    """The whole page as text.

    >>> page = page_html({"title": "</script><b>", "live": False})
    >>> "</script><b>" in page, "&lt;/script&gt;&lt;b&gt;" in page
    (False, True)
    """
    parts = {
        "title": escape(str(payload["title"])),
        "connect": "'self'" if payload.get("live") else "'none'",
        "style": f"{colours()}\n{_file('style.css')}",
        "data": embedded(payload),
        "script": "\n".join(_file(name) for name in scripts()),
    }
    page = _file("template.html")
    # text, name, text, name, ... so that nothing inserted is searched again
    pieces = page.split("@@")
    return "".join(piece if i % 2 == 0 else parts[piece] for i, piece in enumerate(pieces))


def colours() -> str:
    """The light theme's colours of methods, which figures for papers have too.

    >>> colours()[:24]
    ':root { --c0: #332288; -'
    """
    named = " ".join(f"--c{i}: {colour};" for i, colour in enumerate(METHOD_COLOURS))
    return f":root {{ {named} }}"


def embedded(payload: Mapping[str, Any]) -> str:
    """JSON for a script element: no text in it can end the element or begin a comment.

    >>> embedded({"name": "<!--<script>"})
    '{"name":"\\\\u003c!--\\\\u003cscript>"}'
    """
    text = json.dumps(plain(payload), separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def save_page(
    comparison: Comparison,
    path: Path,
    *,
    budget: Resource = "rounds",
    target: float | None = None,
    commands: Sequence[str] = (),
) -> None:
    """Write the report of a comparison."""
    text = page_html(payload_of(comparison, budget=budget, target=target, commands=commands))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf8")
    except OSError as error:
        raise DataError(
            str(path), error.strerror or str(error), "Choose another file for the report"
        ) from None


def scripts() -> list[str]:
    """Every file of the folder ``js``; ``main.js``, which draws the page, is the last.

    >>> scripts()[-1]
    'js/main.js'
    """
    names = sorted(path.name for path in (PAGE / "js").iterdir() if path.name.endswith(".js"))
    return [f"js/{name}" for name in sorted(names, key=lambda name: name == "main.js")]


def _file(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf8")
