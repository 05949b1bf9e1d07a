"""Choose clients whose losses together foretell all others': learn how losses move together.

Tang, Ning, Wang, Sun, Wang, Li, Chen: "FedCor: Correlation-Based Active Client Selection Strategy
for Heterogeneous Federated Learning", CVPR 2022, with the order of events of the authors' code
(Yoruko-Tang/FedCor d941083; docs/methods.md 4.5).

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

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedskew.errors import RecipeError
from fedskew.selection.loss_process import fit, most_informative, standardise
from fedskew.types import Ask, AskLoss, AskTrial, Floats, Ints, Memory, SelectionRule, View

# in every warm-up round, instead of 1000 at its end: what the authors' code does with a mean of
# zero
ZERO_MEAN_STEPS = 150


@dataclass(frozen=True)
class FedCor(SelectionRule):
    """Clients whose losses say most about everybody's (FedCor, CVPR 2022).

    A warm-up learns how losses move together.
    """

    warm_up: int = 15
    every: int = 10
    forget: int = 100
    gamma: float = 0.95
    beta: float = 0.95
    dimension: int = 15
    noise: float = 0.01
    first_steps: int = 1000
    steps: int = 100
    lr: float = 0.01
    mean: Literal["history", "zero"] = "history"
    count: Literal["remaining", "all"] = "remaining"

    def choose(
        self, memory: Memory, view: View, rng: np.random.Generator
    ) -> tuple[Ints | Ask, Memory]:
        """Questions while it learns, then the most informative clients."""
        self._check()
        candidates = np.flatnonzero(view.available)
        if not len(candidates):
            return candidates, memory
        m = min(view.budget, len(candidates))
        finished = view.round - 2  # rounds finished, counted from 0 as in the authors' code
        ready = bool(memory.get("ready", False))
        due = ready and finished % self.every == 0
        if (not ready or due) and not view.answers:
            return AskLoss(candidates), memory
        if due and len(view.answers) == 1:
            return AskTrial(rng.choice(candidates, m, replace=False)), memory
        kept = dict(memory)
        if not ready or due:
            kept = self._learnt(_note_change(kept, view, finished, self.forget), due, finished, rng)
        if not kept["ready"]:
            return np.sort(rng.choice(candidates, m, replace=False)), kept
        return self._informative(kept, view, candidates, m, fresh=due)

    def _learnt(
        self, kept: dict[str, Any], due: bool, finished: int, rng: np.random.Generator
    ) -> dict[str, Any]:
        """The memory after the fit has gone on, as far as this round allows."""
        ends = not due and finished >= self.warm_up
        steps = self.first_steps if ends else 0
        if self.mean == "zero":
            steps = ZERO_MEAN_STEPS
        if due:
            steps = self.steps
        kept = self._fitted(kept, rng, steps)
        kept["ready"] = due or (ends and "embedding" in kept)
        return kept

    def _fitted(self, kept: dict[str, Any], rng: np.random.Generator, steps: int) -> dict[str, Any]:
        """Go on with the fit, or begin it at N(0, 1/d); not while the history says nothing."""
        if not steps or "history" not in kept:
            return kept
        age = (kept["rounds"].max() - kept["rounds"]).astype(np.float64)
        weights = self.gamma**age
        residuals = standardise(kept["history"], weights, centre=self.mean == "history")
        if residuals is None:
            return kept
        start = kept.get("embedding")
        if start is None:
            shape = (self.dimension, residuals.shape[1])
            start = rng.normal(size=shape) / np.sqrt(self.dimension)
        fitted = fit(start, residuals, weights, noise=self.noise, steps=steps, lr=self.lr)
        return kept | {"embedding": fitted}

    def _informative(
        self, kept: dict[str, Any], view: View, candidates: Ints, m: int, *, fresh: bool
    ) -> tuple[Ints, Memory]:
        """m clients, discounted the more often they were chosen since the last fit."""
        counted = view.available if self.count == "remaining" else np.ones(view.size, np.bool_)
        share = view.population.num_examples / max(1, view.population.num_examples.sum())
        discount: Floats = np.ones(view.size)
        if not fresh:
            discount = np.array(kept.get("discount", discount))
        chosen = most_informative(
            kept["embedding"], share, discount, candidates, counted, m, noise=self.noise
        )
        discount[chosen] *= self.beta
        return chosen, kept | {"discount": discount}

    def _check(self) -> None:
        wrong = {
            "every": self.every < 1,
            "dimension": self.dimension < 1,
            "noise": not self.noise > 0,
            "gamma": not 0 < self.gamma <= 1,
        }
        for name in (name for name, is_wrong in wrong.items() if is_wrong):
            remedy = "every, dimension >= 1; noise > 0; 0 < gamma <= 1"
            raise RecipeError(f"selection.{name}", "is out of range", remedy)


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
