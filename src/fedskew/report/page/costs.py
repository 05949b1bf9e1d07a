"""Accuracy against cost: what each method reached, what it spent, and how sure both are."""

from __future__ import annotations

from typing import Any

from fedskew.compare.ranking import ComparisonTable, TableRow
from fedskew.compare.scores import METRIC
from fedskew.compare.verdict import headline

REACHED = ("final", "client_accuracy", "worst10")  # what a picture can show upwards
SPENT = ("bytes", "time", "energy")  # and to the right


def costs_of(table: ComparisonTable) -> dict[str, Any]:
    """The figures of every method and reference, and which accuracy the verdict judges by."""
    judged = headline(table)
    return {
        "judged": "final" if judged is None else judged.metric.key,
        "titles": {key: METRIC[key].title for key in REACHED},
        "methods": [_figures(row) for row in table.rows],
        "references": [_figures(row) for row in table.references],
    }


def _figures(row: TableRow) -> dict[str, Any]:
    """Metric -> [mean, low, high]; without what a row has no figure for."""
    found = {key: row.estimates[key] for key in (*REACHED, *SPENT)}
    known = {key: [e.mean, e.low, e.high] for key, e in found.items() if e.n}
    return {"label": row.label, **known}
