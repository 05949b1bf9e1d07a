"""Of which clients a run's figures speak: on a fleet some may not answer when they are tested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedskew.experiment.run import Run


def untested(clients: Mapping[str, Any]) -> dict[int, str]:
    """client -> why the final model was not tested there, from the columns of a run.

    >>> untested({"client": [0, 1], "untested": ["", "the node has left"]})
    {1: 'the node has left'}
    """
    return {client: why for client, why in enumerate(clients.get("untested", ())) if why}


def covered(run: Run) -> list[int]:
    """[clients behind the final figures, clients that have tests]; [] if there are no such
    figures.
    """
    figures = run.fairness
    return (
        [] if figures is None else [figures.clients, figures.clients + len(untested(run.clients))]
    )


def coverage_notes(run: Run) -> list[str]:
    """What to know of figures that do not cover every client; nothing if all of them do."""
    notes, where = [], f"{run.name}, seed {run.seed}"
    short = [record for record in run.rounds if record.covers is not None]
    if short:
        least = min(short, key=lambda record: record.covers or 0)
        what = f"clients did not answer tests in {len(short)} rounds; at worst figures cover"
        shown = _shown(least.unscored)
        notes.append(f"{where}: {what} {least.covers} clients (round {least.round}: {shown})")
    missing = untested(run.clients)
    if missing:
        tested, there = covered(run)
        what = f"the final model was tested at {tested} of {there} clients"
        notes.append(f"{where}: {what} ({_shown(missing)})")
    return notes


def _shown(reasons: Mapping[int, str], most: int = 3) -> str:
    parts = [f"client {client}: {why}" for client, why in list(reasons.items())[:most]]
    more = len(reasons) - len(parts)
    return "; ".join([*parts, *([f"{more} more"] if more > 0 else [])])
