"""The numbers that a study keeps of a finished run: those every comparison judges it by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedskew.accounting.fairness import fairness
from fedskew.compare.scores import client_scores, scores_of, to_target
from fedskew.experiment.history import History, history_of
from fedskew.experiment.result import Run

Row = dict[str, Any]  # figure -> a number, or a list of numbers


def rows_of_run(result: Run, *, keep: tuple[str, ...], target: float | None) -> list[Row]:
    """One row: the scores of ``fedskew compare``, the number of models, and what else is wanted."""
    history = history_of(result)
    row: Row = {**scores_of(history), "models": len(result.models)}
    if "accuracy" in history.clients:
        row["worst10"] = _worst10(history.clients)
    if target is not None:
        row |= _to_target(history, target)
    if "curve" in keep:
        row |= _curve(history)
    if "clients" in keep:
        row["clients"] = list(history.clients["accuracy"])
    return [row]


def reference_rows(history: History, axis: str, keep: tuple[str, ...]) -> list[Row]:
    """Rows of what could be had without the method, each with its name on the methods' axis."""
    return [
        {
            "of": {axis: name.replace("_", " ")},
            **client_scores(columns),
            "worst10": _worst10(columns),
            **({"clients": list(columns["accuracy"])} if "clients" in keep else {}),
        }
        for name, columns in history.references.items()
        if "failed" not in columns
    ]


def _worst10(columns: Mapping[str, Any]) -> float:
    return fairness(columns["accuracy"], columns["test_examples"]).worst10


def _to_target(history: History, target: float) -> Row:
    """What it took to hold an accuracy; ``missed`` is 1 where that never happened, and the rest
    a bound.
    """
    found = to_target(history, target)
    never = any(missed for _, missed in found.values())
    return {**{key: spent for key, (spent, _) in found.items()}, "missed": int(never)}


def _curve(history: History) -> Row:
    """Accuracy at every evaluation, with rounds, simulated seconds and bytes spent until then."""
    known, accuracies, _ = history.evaluated
    return {
        "curve": accuracies.tolist(),
        "rounds": history.spent("rounds")[known].astype(int).tolist(),
        "clock": history.spent("time")[known].tolist(),
        "traffic": history.spent("bytes")[known].tolist(),
    }
