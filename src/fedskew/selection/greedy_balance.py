"""Choose the clients whose labels together are most balanced, and nothing else: the same few
clients, round after round.

The "greedy technique" that paper 001 (BACSA) compares with, Fig 6c; docs/methods.md 4.8: the group
objective with gamma = 0, solved exactly. What it shows is that balance alone uses few clients: with
estimated, slightly noisy proportions one set is best for ever. Exact histograms can have many
perfect sets (38 of five clients in the example of docs/methods.md 12); then each round draws one of
them.

Differs from the paper: too many clients to look at every subset (above two million) are solved by
swaps, always from the same random starts, so that this, too, gives the same set for the same
proportions.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedskew.labels.balance import ENUMERATE_UP_TO, Solver, count_subsets, pose, solve, target_of
from fedskew.selection.bacsa import signal_of
from fedskew.streams import stream
from fedskew.types import Ints, View, needs


@needs("signal")
def greedy_balance(
    view: View,
    rng: np.random.Generator,
    *,
    target: Literal["uniform", "global"] = "uniform",
    weights: Literal["uniform", "examples"] = "uniform",
    solver: Solver = "auto",
    restarts: int = 5,
) -> Ints:
    """The most balanced group and nothing else, ids ascending (the greedy technique of paper
    001). Options as for ``bacsa``.
    """
    signal, candidates = signal_of(view, "greedy_balance"), np.flatnonzero(view.available)
    m = min(view.budget, len(candidates))
    mass = (
        view.population.num_examples[candidates]
        if weights == "examples"
        else np.ones(len(candidates))
    )
    problem = pose(
        signal.rows[candidates], target=target_of(signal, target), weights=np.maximum(mass, 1)
    )
    swaps = solver == "swap" or count_subsets(len(candidates), m) > ENUMERATE_UP_TO
    source = stream(0, "greedy_balance") if swaps else rng
    return candidates[
        solve(
            problem, m, source, solver=solver, restarts=restarts, where="selection greedy_balance"
        )
    ]
