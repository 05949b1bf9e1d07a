"""Accuracy within a budget of bytes and within one of simulated time."""

from __future__ import annotations

from typing import Any

from fedskew.evidence.cells import Cell
from fedskew.experiment.figures import accuracy_at
from fedskew.experiment.run import Run


def within(cell: Cell, run: Run) -> dict[str, Any]:
    """Means of the last five evaluations within ``measure.megabytes`` and ``measure.seconds``."""
    return {
        "at_bytes": accuracy_at(run, "bytes", cell.options["megabytes"] * 1e6),
        "at_time": accuracy_at(run, "time", cell.options["seconds"]),
    }
