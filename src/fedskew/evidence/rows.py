"""The numbers that a study keeps of a finished run: those every comparison judges it by."""

from __future__ import annotations

from typing import Any

from fedskew.compare.scores import scores_of, target_scores
from fedskew.experiment.figures import fairness_of
from fedskew.experiment.run import Run

Row = dict[str, Any]  # figure -> a number, or a list of numbers


def row_of(run: Run, *, keep: tuple[str, ...], target: float | None) -> Row:
    """The scores of ``fedskew compare``, the number of models, and what else is wanted."""
    row: Row = {**scores_of(run), "models": run.num_models}
    if run.fairness is not None:
        row["worst10"] = run.fairness.worst10
    if target is not None:
        row |= _to_target(run, target)
    if "curve" in keep:
        row |= _curve(run)
    if "multicast" in keep:
        row["multicast"] = sum(t.multicast for record in run.rounds for t in record.transfers)
    if "plateau" in keep and (plateau := run.to_plateau()).seconds is not None:
        row["plateau"] = plateau.seconds
    if "clients" in keep:
        row["clients"] = list(run.clients["accuracy"])
    return row


def reference_rows(run: Run, axis: str, keep: tuple[str, ...]) -> list[Row]:
    """Rows of what could be had without the method, each with its name on the methods' axis."""
    rows = []
    for name, columns in run.references.items():
        figures = fairness_of(columns)  # None: why there is no such row
        if figures is not None:
            row: Row = {
                "of": {axis: name.replace("_", " ")},
                "client_accuracy": figures.weighted,
                "ad": figures.ad,
                "sdad": figures.sdad,
                "worst10": figures.worst10,
            }
            rows.append(row | ({"clients": list(columns["accuracy"])} if "clients" in keep else {}))
    return rows


def _to_target(run: Run, target: float) -> Row:
    """What it took to hold an accuracy; ``missed`` is 1 where that never happened, and the rest
    a bound.
    """
    reached = target_scores(run, target)
    missed = any(never for _, never in reached.values())
    return {**{key: spent for key, (spent, _) in reached.items()}, "missed": int(missed)}


def _curve(run: Run) -> Row:
    """Accuracy at every evaluation, with rounds, simulated seconds and bytes spent until then."""
    known = run.curve.positions
    return {
        "curve": run.curve.accuracy.tolist(),
        "rounds": run.curve.rounds.tolist(),
        "clock": run.spent("time")[known].tolist(),
        "traffic": run.spent("bytes")[known].tolist(),
    }
