"""Figures of skew, and how well the level of skew can be guessed from them; nothing is trained but
the guessers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.inspection import permutation_importance
from sklearn.metrics import r2_score
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

from fedskew.distance import skew_figures
from fedskew.evidence.cells import Cell
from fedskew.measure import counts_of_data

FIGURES = {"wpsi": "WPSI", "hd": "HD", "jsd": "JSD", "emd": "EMD"}
LEVELS = {
    "dirichlet": ("alpha", (50, 10, 5, 1, 0.7, 0.5, 0.3, 0.2, 0.1, 0.09, 0.05)),
    "similarity": ("similarity", (1, 0.7, 0.5, 0.3, 0.2, 0.1, 0.07, 0.05, 0.03, 0.01, 0)),
}


def figures(cell: Cell) -> dict[str, Any]:
    """The five figures of the cell's clients."""
    return _figures(cell.recipe, cell.seed)


def _figures(recipe: Any, seed: int) -> dict[str, float]:
    found = skew_figures(counts_of_data(recipe, seed=seed).table)
    return {
        "wpsi": found.wpsi,
        "hd": found.hd,
        "jsd": found.jsd,
        "emd": found.emd_values,
        "omega": found.omega,
    }


def importance(cell: Cell) -> list[dict[str, Any]]:
    """Per guesser, what each figure is worth to it and how well it guesses."""
    partition = cell.recipe["partition"]
    option, levels = LEVELS[partition["use"]]
    points, aims = [], []
    for clients in cell.options["clients"]:
        for level in levels:
            data = {**cell.recipe["data"], "clients": clients}
            dealt = {**partition, option: float(level)}
            found = _figures({**cell.recipe, "data": data, "partition": dealt}, cell.seed)
            points.append([found[name] for name in FIGURES])
            aims.append(np.log10(level) if option == "alpha" else level)
    x, y = np.array(points), np.array(aims, float)
    return [
        row for name, guesser in _guessers(cell.seed).items() for row in _worth(name, guesser, x, y)
    ]


def _guessers(seed: int) -> dict[str, Any]:
    net = MLPRegressor(
        hidden_layer_sizes=(16,), solver="lbfgs", alpha=0.01, max_iter=500, random_state=seed
    )
    return {
        "gradient boosting": GradientBoostingRegressor(random_state=seed),
        "tree": DecisionTreeRegressor(max_depth=4, random_state=seed),
        "SVM": make_pipeline(StandardScaler(), SVR(C=10.0)),
        "MLP": make_pipeline(StandardScaler(), net),
    }


def _worth(name: str, guesser: Any, x: Any, y: Any) -> list[dict[str, Any]]:
    """How well it guesses federations left out, and the share of every figure in that."""
    left_out = cross_val_predict(guesser, x, y, cv=LeaveOneOut())
    asked = permutation_importance(guesser.fit(x, y), x, y, n_repeats=20, random_state=0)
    shares = np.maximum(asked.importances_mean, 0)
    shares = shares / max(shares.sum(), 1e-12)
    rows: list[dict[str, Any]] = [
        {"of": {"model": name, "figure": title}, "share": float(share)}
        for title, share in zip(FIGURES.values(), shares, strict=True)
    ]
    return [*rows, {"of": {"model": name}, "r2": float(r2_score(y, left_out))}]
