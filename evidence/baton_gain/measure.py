"""How unbalanced the chains of a round are, and what turns and balance bring: the two numbers of
procedure ``baton``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

from fedskew.evidence.cells import Cell
from fedskew.evidence.observations import Observation
from fedskew.labels.omega import omega_balanced
from fedskew.measure import counts_of_data
from fedskew.procedure.groups import cut, predicted_omega
from fedskew.selection.fed_cbs import fed_cbs
from fedskew.signal import histogram
from fedskew.streams import stream
from fedskew.types import Population, View

ROUNDS = 20
EPSILON = 1e-6


def unbalanced(cell: Cell) -> dict[str, float]:
    """omega of the chains over omega of one class each, in the mean over the first 20 rounds."""
    recipe = cell.recipe
    counts = counts_of_data(recipe, seed=cell.seed).table
    sizes, classes = counts.sum(axis=1), counts.shape[1]
    signal = histogram(counts)
    rng, chosen = stream(cell.seed, "measure"), np.zeros(len(sizes), np.int64)
    found = []
    for round in range(1, ROUNDS + 1):
        view = View(
            round=round,
            budget=recipe["run"]["clients_per_round"],
            population=Population(sizes),
            available=np.ones(len(sizes), bool),
            loss=np.full(len(sizes), np.nan),
            times_selected=chosen,
            last_selected=np.zeros(len(sizes), np.int64),
            signal=signal,
        )
        ids = fed_cbs(view, rng)
        chosen = chosen + np.isin(np.arange(len(sizes)), ids)
        chains = recipe["procedure"]["chains"]
        groups = cut(ids, view, chains, rng, groups="balanced", builder="swap")
        found.append(predicted_omega(ids, view, groups, EPSILON))
    most = omega_balanced(1, classes, eps=EPSILON)
    return {"unbalanced": max(0.0, float(np.mean(found))) / most, "turns": len(ids) / chains}


# ---------------------------------------------------------------- the fit


def fitted(rows: Sequence[Observation]) -> str:
    """rounds to the target = c(federation) / (turns^gain (1 - imbalance * unbalanced)): gain and
    imbalance by least squares of logarithms, over lines with the corrected loss.
    """
    balance = {_line(row): row.row for row in rows if row.labels["grid"].startswith("omega")}
    runs = [
        (_line(row), np.log(row.number("rounds_to")))
        for row in rows
        if not row.labels["grid"].startswith("omega") and _line(row) in balance
        if not np.isnan(row.number("rounds_to"))
    ]
    federations = sorted({federation for (federation, _), _ in runs})
    if len(runs) < len(federations) + 3:
        return ""
    told = np.array([value for _, value in runs])
    turns = np.array([balance[line]["turns"] for line, _ in runs])
    apart = np.array([balance[line]["unbalanced"] for line, _ in runs])
    place = np.array([federations.index(federation) for (federation, _), _ in runs])

    def missed(guess: np.ndarray) -> np.ndarray:
        gain, imbalance, levels = guess[0], guess[1], guess[2:]
        brought = gain * np.log(turns) + np.log1p(-imbalance * np.minimum(apart, 1))
        return np.asarray(levels[place] - brought - told)

    start = np.array([0.5, 0.3, *(told[place == i].mean() for i in range(len(federations)))])
    bounds = ([0, 0, *([-9] * len(federations))], [1, 0.95, *([9] * len(federations))])
    found = scipy.optimize.least_squares(missed, start, bounds=bounds)
    inside = 1 - np.var(found.fun) / np.var(told - start[2:][place])
    return (
        "## The fit\n\n"
        "rounds to the target = c / (turns ^ gain · (1 − imbalance · unbalanced)), c for each "
        "federation:\n\n"
        f"**gain = {found.x[0]:.2f}, imbalance = {found.x[1]:.2f}**, which explain "
        f"{100 * inside:.0f} % of the variance of logarithms within federations ({len(runs)} runs)."
    )


def _line(row: Observation) -> tuple[str, str]:
    labels = row.labels
    return (
        labels.get("federation") or labels["images"],
        labels.get("chains") or labels["short"],
    )
