"""Which Flower run plays which run folder: one line for every ``fedskew flower run`` of a fleet.

Flower knows runs by number; rounds and accuracies are in our folders.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.deploy.flower_cli import list_runs
from fedskew.errors import RunError

RUNS = "runs.jsonl"


def note_run(home: Path, run_id: str, folder: Path) -> None:
    """A run has been submitted."""
    with open(home / RUNS, "a", encoding="utf8") as file:
        file.write(json.dumps({"run": run_id, "folder": str(folder)}) + "\n")


def run_folders(home: Path) -> dict[str, Path]:
    """Flower's number -> run folder, in the order they were submitted; lines that are no such thing
    are passed over.
    """
    found: dict[str, Path] = {}
    try:
        lines = (home / RUNS).read_text(encoding="utf8").splitlines()
    except (OSError, ValueError):
        return found
    for line in lines:
        try:
            row = json.loads(line)
            found[str(row["run"])] = Path(str(row["folder"]))
        except (ValueError, TypeError, KeyError):
            continue
    return found


def chosen_run(flower_home: Path, run_id: str | None) -> Mapping[str, Any]:
    """The run of this number; without one, the one that is going on, or else the newest."""
    runs = list_runs(flower_home)
    if run_id is not None:
        found = next((run for run in runs if str(run["run-id"]) == run_id), None)
        if found is None:
            raise RunError(f"run {run_id}", "is not known here", "See: fedskew flower status")
        return found
    if not runs:
        raise RunError("fleet", "has had no run yet", "Submit one: fedskew flower run DIR")
    going = [run for run in runs if is_going(run)]
    if len(going) > 1:
        raise RunError("fleet", f"plays {_numbers(going)}", "Say which one")
    return going[0] if going else max(runs, key=lambda run: str(run.get("pending-at", "")))


def is_going(run: Mapping[str, Any]) -> bool:
    """Whether a run has not ended.

    >>> is_going({"status": "running"}), is_going({"status": "finished:stopped"})
    (True, False)
    """
    return not str(run["status"]).startswith("finished")


def why_ended(run: Mapping[str, Any]) -> str:
    """Why a run has not come to its end.

    >>> why_ended({"status": "finished:stopped", "status-details": "N/A"})
    'was stopped'
    >>> why_ended({"status": "finished:failed", "status-details": "N/A"})
    'finished:failed'
    >>> why_ended({"status": "finished:failed", "status-details": "the disk is full"})
    'the disk is full'
    """
    details = str(run.get("status-details") or "N/A")
    if details == "N/A":
        return "was stopped" if run["status"] == "finished:stopped" else str(run["status"])
    return details.removeprefix("ServerApp failed with exception: ")


def _numbers(runs: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(str(run["run-id"]) for run in runs)
