"""Several models compete: each client takes the one that fits its data best and trains that (IFCA).

Ghosh, Chung, Yin, Ramchandran: "An Efficient Framework for Clustered Federated Learning", NeurIPS
2020, Algorithm 1 with model averaging; docs/methods.md 7.4. Every selected client receives all
models, which is charged, and reports the training loss of each; it trains the one with the lowest
loss, ties to the first. A model nobody took stays as it is. For evaluation a client lives with the
model of the lowest TRAINING loss, never test loss.

Differs from the paper:

- Restarts in one run. IFCA often collapses into one model (docs/methods.md 7.4: 3 restarts). With
  ``restarts`` = r there are r sets of independent first models. Set i trains alone in rounds i w +
  1 .. (i + 1) w, w = ``trial_rounds``; in the round after that the selected clients compare all of
  them and the set with the lowest mean (over clients) of the lowest loss goes on alone. So (r - 1)
  w rounds are spent on sets that are thrown away, and their bytes are charged. ``restarts`` = 1 is
  the paper's method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedskew.errors import RecipeError
from fedskew.types import (
    Ask,
    AskSlots,
    Chain,
    Floats,
    Ints,
    Memory,
    Params,
    Plan,
    ProcedureRule,
    View,
)


@dataclass(frozen=True)
class IFCA(ProcedureRule):
    """Ask the selected clients for their losses under the models that compete now, then send
    each to its best.
    """

    models: int = 2
    restarts: int = 3
    trial_rounds: int = 3

    several_models = True

    def begin(self, fresh: Callable[[int], Params], size: int) -> Params:
        """(restarts x models, D) independent first models, set after set."""
        if self.models < 1 or self.restarts < 1 or self.trial_rounds < 1:
            what = (
                f"models = {self.models}, restarts = {self.restarts}, "
                f"trial_rounds = {self.trial_rounds}"
            )
            raise RecipeError("procedure.ifca", what, "Give whole numbers from 1")
        return np.stack([fresh(i) for i in range(self.models * self.restarts)])

    def plan(
        self, memory: Memory, ids: Ints, view: View, rng: np.random.Generator
    ) -> tuple[Plan | Ask, Memory]:
        """A question first, then everybody on the model that fits it best."""
        if not len(ids):
            return Plan(()), memory
        active = self._active(memory, view.round)
        if not view.answers:
            return AskSlots(ids, active), memory
        losses = np.nan_to_num(view.answers[0].values, nan=np.inf)
        if len(active) > self.models:
            best = best_set(losses, self.models)
            memory, active = {**memory, "best": best}, slots_of(best, self.models)
            losses = losses[:, active]
        choice = active[losses.argmin(axis=1)]
        pairs = zip(choice, ids, strict=True)
        return Plan(tuple(Chain(int(slot), (int(client),)) for slot, client in pairs)), memory

    def _active(self, memory: Memory, round: int) -> Ints:
        """The slots whose models are compared in this round."""
        trying = (round - 1) // self.trial_rounds if self.restarts > 1 else self.restarts
        if trying < self.restarts:
            return slots_of(trying, self.models)
        if "best" in memory or self.restarts == 1:
            return slots_of(memory.get("best", 0), self.models)
        return np.arange(self.models * self.restarts)

    def rehome(self, memory: Memory, num_slots: int) -> Ints:
        """The slots a client may live in: those of the set that went on, before that all."""
        if "best" in memory:
            return slots_of(int(memory["best"]), self.models)
        return np.arange(num_slots)


def slots_of(set_number: int, models: int) -> Ints:
    """The slots of one set of models."""
    return np.arange(set_number * models, (set_number + 1) * models)


def best_set(losses: Floats, models: int) -> int:
    """Which set of models serves the clients best, from losses (n, restarts x models).

    Ties go to the first.

    >>> best_set(np.array([[1.0, 1.0, 0.2, 3.0], [1.0, 1.0, 3.0, 0.2]]), 2)
    1
    """
    lowest = losses.reshape(len(losses), losses.shape[1] // models, models).min(axis=2)
    usable = np.where(np.isfinite(lowest), lowest, np.nan)
    with np.errstate(invalid="ignore"):
        means = np.where(np.isnan(usable), 0, usable).sum(axis=0) / (~np.isnan(usable)).sum(axis=0)
    return int(np.nan_to_num(means, nan=np.inf).argmin())
