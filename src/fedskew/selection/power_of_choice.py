"""Look at d random clients, train the m of them on which the present model is worst.

Cho, Wang, Joshi: "Towards Understanding Biased Client Selection in Federated Learning", AISTATS
2022 (PMLR 151): pow-d (``loss_source="exact"``), cpow-d (``"batch"``: the loss on one mini-batch)
and rpow-d (``"stale"``: what the client reported when it last trained, infinite if never; no extra
traffic). docs/methods.md 4.2.

Differs from the paper:

- d < m is refused: with fewer candidates than places there is no choice left. A published study ran
  it that way.
- d = 0, the default, means 2 m; a d above the number of available clients means all of them.
- A candidate that fails to report its loss is ranked behind all others instead of stalling the
  round.
- ``candidates="uniform"`` draws candidates alike, as FedLab does; the paper draws in proportion to
  their data.

The paper averages the returned models with equal weights, because candidates are drawn by size
already: set ``aggregation.weights = "uniform"``.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedskew.errors import RecipeError
from fedskew.selection.groups import highest
from fedskew.types import AskLoss, Floats, Ints, View, needs


@needs(when=lambda options: ["loss"] if options["loss_source"] == "stale" else [])
def power_of_choice(
    view: View,
    rng: np.random.Generator,
    *,
    d: int = 0,
    candidates: Literal["size", "uniform"] = "size",
    loss_source: Literal["exact", "batch", "stale"] = "exact",
    batch: int = 32,
) -> Ints | AskLoss:
    """The ``view.budget`` candidates with the largest loss, largest first, ties to the lower id.

    ``d`` candidates (0 = twice the budget) are drawn without replacement, by size or uniformly;
    ``batch`` is how many examples they evaluate under ``loss_source="batch"``.
    """
    _check(d, batch, view.budget)
    if not view.available.any():
        return np.empty(0, np.int64)
    if view.answers:
        answer = view.answers[-1]
        asked, values = (
            answer.ask.clients,
            np.where(np.isnan(answer.values), -np.inf, answer.values),
        )
    else:
        asked = draw_candidates(view, rng, d or 2 * view.budget, by_size=candidates == "size")
        if loss_source != "stale":
            return AskLoss(asked, max_examples=batch if loss_source == "batch" else 0)
        values = np.where(np.isnan(view.loss[asked]), np.inf, view.loss[asked])
    return asked[highest(values, min(view.budget, len(asked)))]


def draw_candidates(view: View, rng: np.random.Generator, d: int, *, by_size: bool) -> Ints:
    """d available clients without replacement, ids ascending; one after another in proportion to
    size, or all alike.

    The d smallest of independent exponential times with rates n_k are a draw in proportion to n_k
    without replacement (Efraimidis & Spirakis 2006): one pass instead of d.
    """
    candidates = np.flatnonzero(view.available)
    if d >= len(candidates):
        return candidates
    rates: Floats = (
        np.maximum(view.population.num_examples[candidates], 1e-9)
        if by_size
        else np.ones(len(candidates))
    )
    times = rng.standard_exponential(len(candidates)) / rates
    return np.sort(candidates[np.argpartition(times, d)[:d]])


def _check(d: int, batch: int, budget: int) -> None:
    if d and d < budget:
        what = f"d = {d} candidates for {budget} places: nothing is left to choose"
        raise RecipeError(
            "selection.d", what, "Give d >= run.clients_per_round, or 0 for twice as many"
        )
    if batch < 1:
        raise RecipeError("selection.batch", f"{batch} is not positive", "Give at least 1")
