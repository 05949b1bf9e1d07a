"""What the page shows, as plain values: the federation, every method's runs, table, commands."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import tomli_w

from fedskew.compare.coinciding import coinciding, twins_of
from fedskew.compare.comparison import Comparison
from fedskew.compare.contenders import shared_text
from fedskew.compare.ranking import ComparisonTable, Entry, TableRow
from fedskew.compare.scores import Metric
from fedskew.compare.verdict import verdict
from fedskew.errors import RunFolderError
from fedskew.experiment.coverage import covered
from fedskew.experiment.figures import RESOURCES, Resource
from fedskew.experiment.run import Run
from fedskew.foreign import file_name
from fedskew.report.amounts import change_text, difference_text, estimate_text
from fedskew.report.page.choices import Budget, chains_of, raster_of
from fedskew.report.page.costs import costs_of
from fedskew.report.page.federation import Groups, federation_of
from fedskew.report.terminal.comparison import (
    ACCURACY,
    DIFFERENCES,
    caption,
    shown_metrics,
    title_of,
)
from fedskew.types import Floats
from fedskew.version import __version__

STAGES = (
    *("signal", "distance", "clustering", "selection", "procedure", "objective", "aggregation"),
    "finish",
)
MOST_POINTS = 1_000  # of one learning curve
MOST_CLIENTS = 400  # accuracies of one run; above, as many quantiles


def payload_of(
    comparison: Comparison,
    *,
    budget: Resource = "rounds",
    target: float | None = None,
    commands: Sequence[str] = (),
    live: bool = False,
    groups: Groups | None = None,
    planned: int | None = None,
) -> dict[str, Any]:
    """All of a report.

    ``live``: the page asks for newer values while the runs go on; ``groups`` are kept in between.
    ``planned``: how many runs there will be, where some have not begun; reference runs count.
    """
    table = _finished_table(comparison, budget, target)
    same = coinciding(comparison.entries)
    runs = [run for entry in comparison.entries for run in entry.runs]
    groups = groups or Groups()
    room = Budget.over(runs)
    return {
        "title": f"fedskew: {', '.join(entry.label for entry in comparison.entries)}",
        "version": __version__,
        "made": datetime.now(UTC).isoformat(timespec="minutes"),
        "live": live,
        "shared": shared_text(runs[0].recipe),
        "progress": _progress(comparison, planned),
        "verdict": [] if table is None else verdict(table, comparison.entries),
        "target": target,
        "notes": comparison.notes(),
        "commands": [*commands, *_commands(comparison)],
        "federation": federation_of(runs[0], groups),
        "table": None if table is None else _table(table),
        "costs": None if table is None else costs_of(table),
        "methods": [_method(entry, groups, room, same) for entry in comparison.entries],
        "references": [
            {
                "label": entry.label,
                "runs": [{"seed": r.seed, "accuracies": _accuracies(r)} for r in entry.finished],
            }
            for entry in comparison.references or ()
        ],
        "resources": list(RESOURCES),
        "t95": _t_quantiles(max(len(entry.runs) for entry in comparison.entries)),
    }


def _progress(comparison: Comparison, planned: int | None) -> dict[str, int]:
    """How many of the runs there are to be have ended: of the methods, or of all that a live page
    waits for.
    """
    shown = [run for entry in comparison.entries for run in entry.runs]
    counted = shown if planned is None else [run for _, run in comparison.runs]
    return {
        "runs": len(shown) if planned is None else planned,
        "finished": sum(run.finished for run in counted),
    }


def _method(
    entry: Entry, groups: Groups, room: Budget, same: Sequence[Sequence[Entry]]
) -> dict[str, Any]:
    recipe = entry.recipe
    return {
        "label": entry.label,
        "twins": twins_of(entry.label, same),
        "description": recipe.get("description", ""),
        "citation": recipe.get("citation", ""),
        "stages": {key: recipe[key]["use"] for key in STAGES if key in recipe},
        "recipe": tomli_w.dumps(_no_none(recipe)),
        "rounds": recipe["run"]["rounds"],
        "runs": [_run(run, groups, room) for run in entry.runs],
    }


def _run(run: Run, groups: Groups, room: Budget) -> dict[str, Any]:
    keep = _thinned(run)
    records = [run.rounds[i] for i in keep]
    series: dict[str, list[Any]] = {
        "round": [record.round for record in records],
        "accuracy": digits([record.accuracy for record in records]),
        "client_accuracy": digits([record.client_accuracy for record in records]),
        "loss": digits([record.test_loss for record in records]),
        **{key: digits(run.spent(key)[keep], 6) for key in RESOURCES if key != "rounds"},
    }
    trained = [record for record in run.rounds if record.round and not math.isnan(record.accuracy)]
    if not run.curve.is_global and not trained:
        series["accuracy"] = series["loss"] = []  # only before training was there one model for all
    order = groups.order(run)
    return {
        "seed": run.seed,
        "finished": run.finished,
        "folder": str(run.folder or ""),
        "series": {
            key: values for key, values in series.items() if any(v is not None for v in values)
        },
        "chosen": raster_of(run, order, room),
        "plan": chains_of(run, room),
        "accuracies": _accuracies(run),
        "ledger": _ledger(run),
        "failures": _failures(run),
        "covered": covered(run),
    }


def _thinned(run: Run) -> list[int]:
    """Positions of the records that are drawn: all, or evenly spaced evaluated ones."""
    drawn = list(range(len(run.rounds)))
    evaluated = run.curve.positions.tolist()
    if len(drawn) > MOST_POINTS:
        drawn = evaluated or drawn
    if len(drawn) > MOST_POINTS:
        drawn = [drawn[i] for i in np.linspace(0, len(drawn) - 1, MOST_POINTS).astype(int)]
    return drawn


def digits(values: Sequence[float] | Floats, significant: int = 4) -> list[float | None]:
    """Rounded to save room; nan is None.

    >>> digits([0.123456, float("nan"), 1234567.0], 4)
    [0.1235, None, 1235000]
    """
    rounded: list[float | None] = []
    for value in np.asarray(values, np.float64).tolist():
        short = float(f"{value:.{significant}g}") if value == value else None
        rounded.append(
            int(short) if short is not None and short == int(short) and abs(short) < 1e15 else short
        )
    return rounded


def _accuracies(run: Run) -> list[float | None]:
    accuracies = np.array(run.clients.get("accuracy", []), np.float64)
    accuracies = np.sort(accuracies[~np.isnan(accuracies)])
    if len(accuracies) > MOST_CLIENTS:
        accuracies = np.quantile(accuracies, np.linspace(0, 1, MOST_CLIENTS), method="inverted_cdf")
    return digits(accuracies)


def _ledger(run: Run) -> list[list[Any]]:
    """(direction, kind, bytes, bytes with multicast) over the whole run."""
    sums: dict[tuple[str, str], list[int]] = {}
    for t in (t for record in run.rounds for t in record.transfers):
        cell = sums.setdefault((t.direction, t.kind), [0, 0])
        cell[0] += t.bytes
        cell[1] += t.multicast
    return [[*key, *cell] for key, cell in sorted(sums.items())]


def _failures(run: Run) -> dict[str, Any]:
    """How often each reason came up, and how many clients failed in each round where any did."""
    reasons = Counter(why for record in run.rounds for why in record.failures.values())
    rounds = [[record.round, len(record.failures)] for record in run.rounds if record.failures]
    most = reasons.most_common(30)
    rest = sum(reasons.values()) - sum(number for _, number in most)
    return {
        "reasons": [*most, *([["other reasons", rest]] if rest else [])],
        "rounds": rounds[:MOST_POINTS],
    }


def _finished_table(
    comparison: Comparison, budget: Resource, target: float | None
) -> ComparisonTable | None:
    """None if nothing is finished yet."""
    try:
        return comparison.table(target=target, budget=budget)
    except RunFolderError:
        return None


def _table(table: ComparisonTable) -> dict[str, Any]:
    metrics = shown_metrics(table)
    return {
        "columns": [
            {
                "title": title_of(metric, table),
                "key": metric.key,
                "part": _part(metric),
                "meaning": metric.meaning,
            }
            for metric in metrics
        ],
        "rows": [_table_row(table, number, metrics) for number in range(len(table.rows))],
        "references": [_reference_row(row, metrics) for row in table.references],
        "caption": caption(table),
    }


def _part(metric: Metric) -> str:
    """Which of the page's tables a metric stands in."""
    if metric.key in ACCURACY:
        return "Accuracy"
    return "Cost of reaching the target" if metric.to_target else "Participation and cost in all"


def _table_row(table: ComparisonTable, number: int, metrics: Sequence[Any]) -> dict[str, Any]:
    row = table.rows[number]
    difference = {
        m.key: difference_text(row.differences[m.key])
        for m in metrics
        if number and m.key in DIFFERENCES
    }
    difference |= {
        m.key: change_text(table.saved(row, m)) for m in metrics if number and m.to_target
    }
    return {
        "label": row.label + ("" if row.central else " †"),
        "cells": [estimate_text(row.estimates[m.key], m) for m in metrics],
        "best": [table.best.get(m.key) == number for m in metrics],
        "differences": [difference.get(m.key, "") for m in metrics],
    }


def _reference_row(row: TableRow, metrics: Sequence[Metric]) -> dict[str, Any]:
    return {"label": row.label, "cells": [estimate_text(row.estimates[m.key], m) for m in metrics]}


def _commands(comparison: Comparison) -> list[str]:
    """One command per method that makes its runs again from the recipe the page carries."""
    commands = []
    for entry in comparison.entries:
        seeds = ",".join(str(run.seed) for run in entry.runs)
        commands.append(f"fedskew run {file_name(entry.label)}.toml --seeds {seeds}")
    return commands


def _t_quantiles(most: int) -> list[float]:
    """0.975 quantile of Student's t by number of seeds; 0 where there is no interval."""
    from scipy.special import stdtrit

    return [0.0, 0.0, *(round(float(stdtrit(n - 1, 0.975)), 4) for n in range(2, most + 1))]


def _no_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _no_none(v) for k, v in value.items() if v is not None}
    return [_no_none(v) for v in value] if isinstance(value, list | tuple) else value
