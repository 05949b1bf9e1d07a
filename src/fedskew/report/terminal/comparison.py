"""A comparison in the terminal: what accuracy, then at what cost, methods down the side.

Names are text, never markup.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedskew.compare.amounts import amount
from fedskew.compare.estimates import FEWEST
from fedskew.compare.ranking import ComparisonTable, TableRow
from fedskew.compare.scores import Metric
from fedskew.compare.verdict import REFERENCES
from fedskew.foreign import printable
from fedskew.report.amounts import change_text, difference_text, estimate_text

ACCURACY = ("final", "best", "at_budget", "client_accuracy", "worst10", "ad", "sdad")
# the first two of these that are shown fit 80 columns
DIFFERENCES = ("final", "at_budget", "client_accuracy")
WIDE = 100  # columns: fewer have no room for the worst tenth, which the verdict names too
ABBREVIATIONS = ("ad", "sdad", "jain")
KINDS = {"rounds": "count", "bytes": "bytes", "time": "seconds", "energy": "joules"}
CellText = Callable[[TableRow, Metric, bool], Text]


def show_comparison(comparison: ComparisonTable, console: Console) -> None:
    """Print accuracy, differences and cost, and what to know about them."""
    fits = console.width >= WIDE
    accuracy = [
        m for m in shown_metrics(comparison) if m.key in ACCURACY and (fits or m.key != "worst10")
    ]
    reached = [m for m in comparison.metrics if m.to_target]
    spent = [m for m in comparison.metrics if m.key not in ACCURACY and not m.to_target]
    first = printable(comparison.rows[0].label, 20)
    differing = [m for m in accuracy if m.key in DIFFERENCES][:2]
    below: list[tuple[str, list[Metric], CellText, int]] = [  # each narrow enough for 80 columns
        (f"minus {first}", differing, _difference, 1),
        ("recipe", reached, _cell, 0),
        (f"against {first}", reached, partial(_saved, comparison), 1),
        ("recipe", spent, _cell, 0),
    ]
    console.print(
        _add_references(_table(comparison, "recipe", accuracy, _cell), comparison, accuracy)
    )
    for head, metrics, cell, begin in below:
        if metrics and begin < len(comparison.rows):
            console.print()
            console.print(_table(comparison, head, metrics, cell, first=begin))
    console.print()
    for note in caption(comparison):
        console.print(Text(note, style="dim"))


def shown_metrics(comparison: ComparisonTable) -> list[Metric]:
    """Metrics without a column that only repeats another.

    At equal rounds all is as in the end, if all played as many.
    """
    same = all(row.values["at_budget"] == row.values["final"] for row in comparison.rows)
    return [m for m in comparison.metrics if not (m.key == "at_budget" and same)]


def _table(
    comparison: ComparisonTable,
    head: str,
    metrics: Sequence[Metric],
    cell: CellText,
    *,
    first: int = 0,
) -> Table:
    table = Table(show_edge=False, pad_edge=False, box=None, header_style="bold")
    table.add_column(head, no_wrap=True)
    for metric in metrics:
        table.add_column(title_of(metric, comparison), justify="right", overflow="fold")
    for number, row in enumerate(comparison.rows[first:], start=first):
        name = Text(printable(row.label, 28) + ("" if row.central else " †"))
        table.add_row(
            name,
            *(cell(row, metric, comparison.best.get(metric.key) == number) for metric in metrics),
        )
    return table


def _add_references(table: Table, comparison: ComparisonTable, metrics: Sequence[Metric]) -> Table:
    """A block of their own below the methods."""
    if comparison.references:
        table.add_section()
        table.add_row()
        table.add_row(Text("references:", style="dim"))
    for row in comparison.references:
        table.add_row(
            Text(f"  {printable(row.label, 26)}"),
            *(_cell(row, metric, False) for metric in metrics),
            style="dim",
        )
    return table


def _cell(row: TableRow, metric: Metric, best: bool) -> Text:
    return Text(estimate_text(row.estimates[metric.key], metric), style="bold" if best else "")


def _saved(comparison: ComparisonTable, row: TableRow, metric: Metric, best: bool) -> Text:
    return Text(change_text(comparison.saved(row, metric)), no_wrap=True)


def _difference(row: TableRow, metric: Metric, best: bool) -> Text:
    return Text(difference_text(row.differences[metric.key]), no_wrap=True)


def title_of(metric: Metric, comparison: ComparisonTable) -> str:
    """A column's heading, with the budget or target in it."""
    if metric.key == "at_budget":
        return f"at {budget_text(comparison)}"
    if metric.to_target:
        return metric.title.replace("target", f"{comparison.target:g}")
    return metric.title


def budget_text(comparison: ComparisonTable) -> str:
    """The budget everybody had, in words."""
    size = amount(comparison.budget_size, KINDS[comparison.budget])
    return (
        f"{size} rounds" if comparison.budget == "rounds" else f"equal {comparison.budget}, {size}"
    )


def caption(comparison: ComparisonTable) -> list[str]:
    """The small print below a table."""
    seeds = sorted({len(row.seeds) for row in comparison.rows})
    number = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    lines = [
        f"mean over {number} seed{'s' if seeds[-1] > 1 else ''}, ± 95 % t-interval; "
        "final = mean of the last five evaluations; "
        "differences are paired by seed, [95 % bootstrap interval], * = 0 is outside; "
        "bold: better than every other method in that sense, and by a thousandth at least"
    ]
    if any(m.to_target for m in comparison.metrics) and len(comparison.rows) > 1:
        lines.append(
            "change in the cost of the target: of the means; ≤ and ≥ where a seed never reached it"
        )
    if seeds[-1] < FEWEST:
        lines.append(f"fewer than {FEWEST} seeds: no difference is called real")
    if math.isnan(comparison.budget_size):
        lines.append(f"no figures at equal {comparison.budget}: not every run has an account of it")
    if any(not row.central for row in comparison.rows):
        lines.append(
            "† no global model: "
            "see the clients' accuracy, of their own models on their own test sets"
        )
    short = [metric for metric in comparison.metrics if metric.key in ABBREVIATIONS]
    if short:
        lines.append(". ".join(f"{metric.title}: {metric.meaning}" for metric in short))
    if comparison.references:
        lines.append(references_text(comparison))
    return [*lines, *comparison.notes]


def references_text(comparison: ComparisonTable) -> str:
    """What the reference rows are."""
    labels = [row.label for row in comparison.references]
    known = [
        f"{name}: {what.format(tuned=comparison.tuned)}"
        for name, what in REFERENCES.items()
        if name in labels
    ]
    return f"references, on the clients' own test sets, never ranked: {'; '.join(known or labels)}"
