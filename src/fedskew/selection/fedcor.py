"""Choose clients whose losses, taken together, foretell the losses of all others: learn first how
losses move together.

Tang, Ning, Wang, Sun, Wang, Li, Chen: "FedCor: Correlation-Based Active Client Selection Strategy
for Heterogeneous Federated Learning", CVPR 2022, with the order of events of the authors' code
(Yoruko-Tang/FedCor d941083; METHODS 4.5).

- Warm-up, ``warm_up`` + 1 rounds as in that code: uniform selection; before each round all
  available clients report their loss.
- Then 1000 steps of maximum likelihood on the loss changes of those rounds
  (:mod:`fedskew.selection.loss_process`).
- From then on clients are chosen by the covariance. A client that was chosen counts ``beta`` times
  less, until every ``every`` rounds a throw-away round of random clients adds one more loss change,
  the fit goes on for 100 steps and the discounts end.

Differs from the paper:

- The sum over clients in the score runs over those that are available and not yet chosen, as in the
  authors' code. The paper sums over all; as a chosen client's covariance with everybody is 0 from
  then on, that differs only in the clients that are away (``count = "all"``).
- Loss changes are divided by their spread before the fit. Scale does not change who is chosen, but
  a step of 0.01 should mean the same for losses of 0.1 and of 10.
- The likelihood is that of the clients seen: who was away or failed in a round is left out of that
  round, not filled in.
- The throw-away round needs the losses of the present model too: both evaluations are asked for,
  and charged.
- Without two usable loss changes (nobody reports a loss) the warm-up goes on.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fedskew.errors import RecipeError
from fedskew.selection.loss_process import fit, most_informative, standardise
from fedskew.types import Ask, AskLoss, AskTrial, Floats, Ints, Memory, Stateful, View

# in every warm-up round, instead of 1000 at its end: what the authors' code does with a mean of
# zero
ZERO_MEAN_STEPS = 150


def step(
    memory: Memory,
    view: View,
    rng: np.random.Generator,
    *,
    warm_up: int = 15,
    every: int = 10,
    forget: int = 100,
    gamma: float = 0.95,
    beta: float = 0.95,
    dimension: int = 15,
    noise: float = 0.01,
    first_steps: int = 1000,
    steps: int = 100,
    lr: float = 0.01,
    mean: Literal["history", "zero"] = "history",
    count: Literal["remaining", "all"] = "remaining",
) -> tuple[Ints | Ask, Memory]:
    """Clients whose losses say most about everybody's; a warm-up learns how losses move together
    (FedCor, CVPR 2022).
    """
    _check(every=every, dimension=dimension, noise=noise, gamma=gamma)
    candidates = np.flatnonzero(view.available)
    if not len(candidates):
        return candidates, memory
    m, finished, ready = (
        min(view.budget, len(candidates)),
        view.round - 2,
        bool(memory.get("ready", False)),
    )
    due = ready and finished % every == 0  # rounds finished, counted from 0 as in the authors' code
    if (not ready or due) and not view.answers:
        return AskLoss(candidates), memory
    if due and len(view.answers) == 1:
        return AskTrial(rng.choice(candidates, m, replace=False)), memory
    kept = dict(memory)
    if not ready or due:
        kept = _note_change(kept, view, finished, forget)
        ends = not ready and finished >= warm_up
        budgeted = (
            steps if due else ZERO_MEAN_STEPS if mean == "zero" else first_steps if ends else 0
        )
        kept = _train(
            kept,
            rng,
            dimension,
            steps=budgeted,
            gamma=gamma,
            noise=noise,
            lr=lr,
            centre=mean == "history",
        )
        kept["ready"] = ready or (ends and "embedding" in kept)
    if not kept["ready"]:
        return np.sort(rng.choice(candidates, m, replace=False)), kept
    counted = view.available if count == "remaining" else np.ones(view.size, np.bool_)
    share = view.population.num_examples / max(1, view.population.num_examples.sum())
    discount: Floats = (
        np.ones(view.size) if due else np.array(kept.get("discount", np.ones(view.size)))
    )
    chosen = most_informative(
        kept["embedding"], share, discount, candidates, counted, m, noise=noise
    )
    discount[chosen] *= beta
    return chosen, kept | {"discount": discount}


def _check(*, every: int, dimension: int, noise: float, gamma: float) -> None:
    wrong = {
        "every": every < 1,
        "dimension": dimension < 1,
        "noise": not noise > 0,
        "gamma": not 0 < gamma <= 1,
    }
    for name in (name for name, is_wrong in wrong.items() if is_wrong):
        raise RecipeError(
            f"selection.{name}",
            "is out of range",
            "every, dimension >= 1; noise > 0; 0 < gamma <= 1",
        )


def _note_change(kept: dict[str, Any], view: View, finished: int, forget: int) -> dict[str, Any]:
    """Add the loss change of the round before (warm-up) or of the throw-away round; drop those
    older than ``forget`` rounds.
    """
    now = _spread(view, 0)
    if len(view.answers) == 2:
        change = view.answers[1].values - now
    else:
        change = now - kept.get("losses", np.full(view.size, np.nan))
        kept["losses"] = now
    if not np.isfinite(change).any():
        return kept
    rounds = np.append(kept.get("rounds", np.empty(0, np.int64)), np.int64(finished))
    history = np.vstack([kept.get("history", np.empty((0, view.size))), change])
    recent = rounds + forget >= finished
    return kept | {"rounds": rounds[recent], "history": history[recent]}


def _spread(view: View, turn: int) -> Floats:
    """(K,) the losses of one answer; nan for everybody who was not asked."""
    losses = np.full(view.size, np.nan)
    losses[view.answers[turn].ask.clients] = view.answers[turn].values
    return losses


def _train(
    kept: dict[str, Any],
    rng: np.random.Generator,
    dimension: int,
    *,
    steps: int,
    gamma: float,
    noise: float,
    lr: float,
    centre: bool,
) -> dict[str, Any]:
    """Go on with the fit, or begin it at N(0, 1/d); nothing happens while the history says
    nothing.
    """
    if not steps or "history" not in kept:
        return kept
    weights = gamma ** (kept["rounds"].max() - kept["rounds"]).astype(np.float64)
    residuals = standardise(kept["history"], weights, centre=centre)
    if residuals is None:
        return kept
    size = residuals.shape[1]
    embedding = kept.get("embedding")
    if embedding is None:
        embedding = rng.normal(size=(dimension, size)) / np.sqrt(dimension)
    return kept | {"embedding": fit(embedding, residuals, weights, noise=noise, steps=steps, lr=lr)}


fedcor = Stateful(step)
