"""A pilot: the best candidates trained for a few real rounds, on the federation itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedskew.advice.forecast import Anchor
from fedskew.advice.subject import Subject
from fedskew.errors import RunError
from fedskew.experiment.figures import last_mean
from fedskew.experiment.local import run_resolved

ROUNDS = 8
CANDIDATES = 4


def play_pilot(
    subject: Subject, recipes: Sequence[tuple[str, Mapping[str, Any]]]
) -> dict[str, Anchor]:
    """Method -> what it reached after a few rounds; of the first so many recipes, best first."""
    if not subject.has_data:
        what = "there are no data to train on, only label counts"
        raise RunError("--pilot", what, "Give a recipe, or a run folder whose data can be had")
    return {method: _played(subject, recipe) for method, recipe in recipes[:CANDIDATES]}


def _played(subject: Subject, recipe: Mapping[str, Any]) -> Anchor:
    run = {**recipe["run"], "rounds": ROUNDS, "evaluate_every": 1, "evaluate_clients_every": 0}
    curve = run_resolved({**recipe, "run": run}, seed=subject.seed, workers=1).curve
    return Anchor(ROUNDS, last_mean(curve.rounds, curve.accuracy))
