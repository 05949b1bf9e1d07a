"""Clients are mixtures: each keeps a model of its own, pulled towards several centres by how much
of its data each explains.

Ruan, Joe-Wong: "FedSoft: Soft Clustered Federated Learning with Proximal Local Updating", AAAI
2022, Algorithm 1; docs/methods.md 7.3. Slots 0..S-1 are the centres c_s, slot S + k is client k's
model w_k. Every ``estimate_every`` rounds everyone reports u_ks, the share of its examples whose
loss is lowest under c_s (0 counts as ``smallest_share``); v_ks = u_ks n_k / sum_k' u_k's n_k'. For
each centre some clients are drawn without replacement by v_ks; they minimise f_k(w) + (lambda / 2)
sum_s u_ks |w - c_s|^2 from their own w_k, and the centre becomes the mean of its drawn clients'
models.

How the penalty travels: with sum_s u_ks = 1 its gradient lambda (w - sum_s u_ks c_s) is a proximal
term lambda (w - w_k) plus the constant lambda (w_k - sum_s u_ks c_s), which is ``corrections``.

Differs from the paper:

- u_ks are scaled to sum to 1 again after zeros were raised to ``smallest_share``: at most S x 1e-4
  of them.
- Clients' own models begin as the run's initial model, centre 0 too; the others are independent.
  Identical centres never separate, so they are refused.
- ``draw = "given"``: the clients that the selection rule names take part in every centre with
  weights v_ks, as the authors do under full participation. With ``"importance"`` the selection rule
  is not heard: the draw itself is the selection.
- ``per_centre`` 0 means the round's budget divided by the number of centres.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedskew.errors import RecipeError, RunError
from fedskew.procedure.local_only import check_room
from fedskew.types import (
    Aftermath,
    Ask,
    AskShares,
    Bools,
    Chain,
    Floats,
    Ints,
    LocalJob,
    Memory,
    Params,
    Plan,
    ProcedureRule,
    View,
)

Draw = Literal["importance", "given"]


@dataclass(frozen=True)
class FedSoft(ProcedureRule):
    """Every few rounds ask everyone which centre explains what; then draw, and train each drawn
    client on its own model.
    """

    centres: int = 5
    strength: float = 0.1
    estimate_every: int = 2
    draw: Draw = "importance"
    per_centre: int = 0
    smallest_share: float = 1e-4

    several_models = True
    looks_back = True
    corrects = True

    def begin(self, fresh: Callable[[int], Params], size: int) -> Params:
        """(S + K, D) independent centres, then everybody's own model."""
        self._check()
        first = fresh(0)
        check_room("procedure fedsoft", self.centres + size, len(first))
        means = np.stack([first, *(fresh(i) for i in range(1, self.centres))])
        if len(np.unique(means, axis=0)) < self.centres:
            what = "some centres begin with identical models and would never separate"
            raise RunError("procedure fedsoft", what, "Use a model with random initial values")
        return np.concatenate([means, np.repeat(first[None], size, axis=0)])

    def _check(self) -> None:
        counts = self.centres >= 1 and self.estimate_every >= 1 and self.per_centre >= 0
        if not counts or not 0 < self.smallest_share < 1:
            remedy = "Give at least one centre, one round, and a share between 0 and 1"
            raise RecipeError("procedure.fedsoft", str(self), remedy)

    def plan(
        self, memory: Memory, ids: Ints, view: View, rng: np.random.Generator
    ) -> tuple[Plan | Ask, Memory]:
        """A question every few rounds; one chain per client that was drawn for any centre."""
        shares = self._shares(memory, view.size)
        if view.answers:
            shares = shares.copy()
            reported = floored(view.answers[0].values, self.smallest_share)
            shares[view.answers[0].ask.clients] = reported
        elif (view.round - 1) % self.estimate_every == 0 and view.available.any():
            return AskShares(np.flatnonzero(view.available), np.arange(self.centres)), memory
        drawn = self._draw(shares, ids, view, rng)
        examples = view.population.num_examples
        chosen = np.flatnonzero(drawn.any(axis=0))
        chains = tuple(Chain(self.centres + int(c), (int(c),)) for c in chosen)
        home = self.centres + np.arange(view.size)
        kept = {"shares": shares, "drawn": drawn, "examples": examples}
        return Plan(chains, home=home, models_down=self.centres), kept

    def _shares(self, memory: Memory, size: int) -> Floats:
        """(K, S) what everybody reported last; an even mixture before anybody has."""
        even = np.full((size, self.centres), 1 / self.centres)
        shares: Floats = memory.get("shares", even)
        return shares

    def _draw(self, shares: Floats, ids: Ints, view: View, rng: np.random.Generator) -> Bools:
        """(S, K) who takes part in which centre."""
        if self.draw == "given":
            return np.tile(np.isin(np.arange(view.size), ids), (self.centres, 1))
        count = self.per_centre or max(1, view.budget // self.centres)
        weight = view.population.num_examples[:, None] * view.available[:, None]
        return draw_clients(shares * weight, count, rng)

    def job(self, job: LocalJob) -> LocalJob:
        """The job with the proximal half of the penalty."""
        if self.strength < 0 or job.prox_mu:
            what = f"strength = {self.strength}, local.prox_mu = {job.prox_mu}"
            raise RecipeError("procedure.fedsoft", what, "Give strength, leave prox_mu 0")
        return replace(job, prox_mu=self.strength)

    def corrections(
        self, memory: Memory, clients: Sequence[int], models: Params, num_weights: int
    ) -> Params:
        """lambda (w_k - sum_s u_ks c_s) for each client."""
        weights = models[:, :num_weights]
        centres = weights[: self.centres].astype(np.float64)
        shares = self._shares(memory, len(models) - self.centres)
        pulled = shares[list(clients)] @ centres
        trained = weights[self.centres + np.asarray(clients)]
        return np.asarray(self.strength * (trained - pulled), np.float32)

    def after(self, memory: Memory, seen: Aftermath) -> tuple[Params, Ints, Memory]:
        """Keep each client's own model as it came back; move each centre to the mean of those
        drawn for it that answered.
        """
        models = np.array(seen.models)
        models[self.centres + seen.clients] = seen.returned
        for centre in range(self.centres):
            mine = memory["drawn"][centre, seen.clients]
            if mine.any():
                returned = seen.returned[mine].astype(np.float64)
                weights = self._weights(memory, seen.clients[mine], centre)
                models[centre] = np.average(returned, axis=0, weights=weights)
        return models, seen.home, memory

    def _weights(self, memory: Memory, clients: Ints, centre: int) -> Floats:
        if self.draw == "importance":
            return np.ones(len(clients))
        weights: Floats = memory["shares"][clients, centre] * memory["examples"][clients]
        return weights


def floored(shares: Floats, smallest: float) -> Floats:
    """Shares of at least ``smallest``, summing to 1; who could not say is an even mixture.

    >>> floored(np.array([[1.0, 0.0], [np.nan, np.nan]]), 0.25)
    array([[0.8, 0.2],
           [0.5, 0.5]])
    """
    raised = np.where(
        np.isnan(shares).any(axis=1, keepdims=True), 1.0, np.maximum(shares, smallest)
    )
    scaled: Floats = raised / raised.sum(axis=1, keepdims=True)
    return scaled


def draw_clients(importance: Floats, count: int, rng: np.random.Generator) -> Bools:
    """(S, K) for each centre ``count`` clients drawn without replacement by importance (K, S);
    all if there are fewer.
    """
    drawn = np.zeros(importance.T.shape, np.bool_)
    for centre, mass in enumerate(importance.T):
        willing = np.flatnonzero(mass > 0)
        few = len(willing) <= count
        drawn[
            centre,
            willing
            if few
            else rng.choice(willing, count, replace=False, p=mass[willing] / mass[willing].sum()),
        ] = True
    return drawn
