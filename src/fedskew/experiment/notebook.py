"""What runs look like in a notebook: a table, a curve, and a bar while they go on.

Plain HTML and SVG, so that a notebook needs nothing else and shows them again after it was saved.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from fedskew.types import RoundRecord

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT, MARGIN = 520, 220, 36
OF_CLIENTS = " (clients' accuracy)"  # of a method without a global model
STYLE = "font:12px sans-serif;color:inherit"


def table_html(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> str:
    """A table of texts; the first column names the rows."""
    top = "".join(f"<th style='text-align:left'>{escape(text)}</th>" for text in head)
    body = "".join(
        "<tr>"
        + "".join(f"<td style='text-align:left'>{escape(text)}</td>" for text in row)
        + "</tr>"
        for row in rows
    )
    return f"<table style='{STYLE}'>" + (f"<tr>{top}</tr>" if head else "") + f"{body}</table>"


def curves_svg(curves: Mapping[str, Points], title: str = "accuracy by round") -> str:
    """Lines of accuracy against rounds, with their names; "" if there is nothing to draw."""
    known = {name: [p for p in points if not math.isnan(p[1])] for name, points in curves.items()}
    known = {name: points for name, points in known.items() if points}
    if not known:
        return ""
    last = max(max(x for x, _ in points) for points in known.values()) or 1
    lines, names = [], []
    for number, (name, points) in enumerate(known.items()):
        colour = f"hsl({(210 + 137 * number) % 360} 65% 45%)"
        path = " ".join(f"{_x(x, last):.1f},{_y(y):.1f}" for x, y in points)
        lines.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>")
        names.append(f"<span style='color:{colour}'>&#9632;</span> {escape(name)}")
    grid = "".join(
        f"<line x1='{MARGIN}' x2='{WIDTH}' y1='{_y(y):.0f}' y2='{_y(y):.0f}' stroke='currentColor'"
        f" opacity='.15'/><text x='2' y='{_y(y) + 4:.0f}' fill='currentColor'>{y:g}</text>"
        for y in (0, 0.25, 0.5, 0.75, 1)
    )
    ends = (
        f"<text x='{MARGIN}' y='{HEIGHT - 4}' fill='currentColor'>0</text><text x='{WIDTH}' "
        f"y='{HEIGHT - 4}' text-anchor='end' fill='currentColor'>round {last:g}</text>"
    )
    label = escape(f"{title}: {', '.join(known)}", quote=True)
    return (
        f"<div style='{STYLE}'><svg role='img' aria-label='{label}' width='{WIDTH}' "
        f"height='{HEIGHT}' viewBox='0 0 {WIDTH} {HEIGHT}' style='font:11px sans-serif'>"
        f"{grid}{''.join(lines)}{ends}</svg><br/>{escape(title)}: {' '.join(names)}</div>"
    )


def _x(x: float, last: float) -> float:
    return MARGIN + (WIDTH - MARGIN) * x / last


def _y(y: float) -> float:
    return 8 + (HEIGHT - 28) * (1 - y)


# ---------------------------------------------------------------- while it goes on


def in_notebook() -> bool:
    """Whether this Python shows its results in a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


class NotebookBar:
    """A bar below the cell, moved on by every round; gone when the run has ended."""

    def __init__(self, title: str, rounds: int) -> None:
        from IPython.display import HTML, display  # type: ignore[import-not-found]

        self._html, self._title, self._rounds = HTML, title, max(rounds, 1)
        self._shown = display(HTML(self._bar(0, "starting")), display_id=True)

    def _bar(self, done: int, facts: str) -> str:
        bar = f"<progress value='{done}' max='{self._rounds}'></progress>"
        text = escape(f"{self._title}: round {done} of {self._rounds}, {facts}")
        return f"<div style='{STYLE}'>{bar} {text}</div>"

    def __call__(self, record: RoundRecord) -> None:
        """A round has ended."""
        measured = record.client_accuracy if math.isnan(record.accuracy) else record.accuracy
        facts = "" if math.isnan(measured) else f"accuracy {measured:.3f}"
        self._shown.update(self._html(self._bar(record.round, facts)))

    def close(self) -> None:
        """Take the bar away."""
        self._shown.update(self._html(""))


def both(
    first: Callable[[RoundRecord], Any], second: Callable[[RoundRecord], Any] | None
) -> Callable[[RoundRecord], None]:
    """Tell the one, then the other."""

    def tell(record: RoundRecord) -> None:
        first(record)
        if second is not None:
            second(record)

    return tell
