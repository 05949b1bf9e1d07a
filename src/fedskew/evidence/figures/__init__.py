"""Figures of a page as ``study.toml`` declares them: which kind, of which rows.

docs/evidence.md lists the kinds and what each of them reads of a declaration. A new kind is a
function (declaration, its rows, all rows) -> figure in a file here, and a line in ``KINDS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.errors import StudyError, did_you_mean
from fedskew.evidence.fields import check_entries
from fedskew.evidence.figures.against_axis import heat, lines
from fedskew.evidence.figures.clients import bars, distribution
from fedskew.evidence.figures.curves import curves
from fedskew.evidence.figures.declared import Figure, Rows
from fedskew.evidence.figures.dots import dots
from fedskew.evidence.observations import Observation, select
from fedskew.report.figures.style import DPI, drawing

KINDS: Mapping[str, Callable[[Figure, Rows, Rows], Any]] = {
    "dots": dots,
    "curves": curves,
    "lines": lines,
    "heat": heat,
    "bars": bars,
    "distribution": distribution,
}


def read_figure(where: str, raw: Mapping[str, Any]) -> Figure:
    """A figure as it stands in ``study.toml``, checked."""
    check_entries(where, raw, Figure)
    for needed in ("file", "kind"):
        if needed not in raw:
            raise StudyError(where, f"a figure has no {needed}", f"Add {needed}")
    if raw["kind"] not in KINDS:
        hint = did_you_mean(str(raw["kind"]), KINDS)
        raise StudyError(where, f"there is no kind of figure '{raw['kind']}'", hint)
    return Figure(**raw)


def draw(figure: Figure, everything: Sequence[Observation], folder: Path) -> Path | None:
    """Write a figure; None where there is nothing to show."""
    rows = select(everything, figure.where)
    if not rows:
        return None
    path = folder / figure.file
    with drawing():
        drawn = KINDS[figure.kind](figure, rows, everything)
        drawn.savefig(path, dpi=DPI, metadata={"Software": None})
    return path
