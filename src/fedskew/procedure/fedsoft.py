"""Clients are mixtures: each keeps a model of its own, pulled towards several centres by how much
of its data each explains.

Ruan, Joe-Wong: "FedSoft: Soft Clustered Federated Learning with Proximal Local Updating", AAAI
2022, Algorithm 1; METHODS 7.3. Slots 0..S-1 are the centres c_s, slot S + k is client k's model
w_k. Every ``estimate_every`` rounds everyone reports u_ks, the share of its examples whose loss is
lowest under c_s (0 counts as ``smallest_share``); v_ks = u_ks n_k / sum_k' u_k's n_k'. For each
centre some clients are drawn without replacement by v_ks; they minimise f_k(w) + (lambda / 2) sum_s
u_ks |w - c_s|^2 from their own w_k, and the centre becomes the mean of its drawn clients' models.

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
from dataclasses import replace
from typing import Any, Literal

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
    Stateful,
    View,
)

Draw = Literal["importance", "given"]


def begin(
    fresh: Callable[[int], Params],
    size: int,
    *,
    centres: int = 5,
    estimate_every: int = 2,
    per_centre: int = 0,
    smallest_share: float = 1e-4,
    **rest: Any,
) -> Params:
    """(S + K, D) independent centres, then everybody's own model."""
    if centres < 1 or estimate_every < 1 or per_centre < 0 or not 0 < smallest_share < 1:
        what = (
            f"centres = {centres}, estimate_every = {estimate_every}, "
            f"per_centre = {per_centre}, smallest_share = {smallest_share}"
        )
        raise RecipeError(
            "procedure.fedsoft",
            what,
            "Give at least one centre, one round, and a share between 0 and 1",
        )
    first = fresh(0)
    check_room("procedure fedsoft", centres + size, len(first))
    means = np.stack([first, *(fresh(i) for i in range(1, centres))])
    if len(np.unique(means, axis=0)) < centres:
        what = "some centres begin with identical models and would never separate"
        raise RunError("procedure fedsoft", what, "Use a model with random initial values")
    return np.concatenate([means, np.repeat(first[None], size, axis=0)])


def step(
    memory: Memory,
    ids: Ints,
    view: View,
    rng: np.random.Generator,
    *,
    centres: int = 5,
    strength: float = 0.1,
    estimate_every: int = 2,
    draw: Draw = "importance",
    per_centre: int = 0,
    smallest_share: float = 1e-4,
) -> tuple[Plan | Ask, Memory]:
    """Every few rounds ask everyone which centre explains what; then draw, and train each drawn
    client on its own model.
    """
    shares: Floats = memory.get("shares", np.full((view.size, centres), 1 / centres))
    if view.answers:
        shares = shares.copy()
        shares[view.answers[0].ask.clients] = floored(view.answers[0].values, smallest_share)
    elif (view.round - 1) % estimate_every == 0 and view.available.any():
        return AskShares(np.flatnonzero(view.available), np.arange(centres)), memory
    if draw == "given":
        drawn = np.tile(np.isin(np.arange(view.size), ids), (centres, 1))
    else:
        count = per_centre or max(1, view.budget // centres)
        drawn = draw_clients(
            shares * view.population.num_examples[:, None] * view.available[:, None], count, rng
        )
    chains = tuple(Chain(centres + int(c), (int(c),)) for c in np.flatnonzero(drawn.any(axis=0)))
    home = centres + np.arange(view.size)
    examples = view.population.num_examples
    return Plan(chains, home=home, models_down=centres), {
        "shares": shares,
        "drawn": drawn,
        "examples": examples,
    }


def floored(shares: Floats, smallest: float) -> Floats:
    """Shares of at least ``smallest``, summing to 1; a client that could not say counts as an even
    mixture.

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
        there = np.flatnonzero(mass > 0)
        few = len(there) <= count
        drawn[
            centre,
            there
            if few
            else rng.choice(there, count, replace=False, p=mass[there] / mass[there].sum()),
        ] = True
    return drawn


def penalised(
    job: LocalJob,
    *,
    strength: float = 0.1,
    **rest: Any,
) -> LocalJob:
    """The job with the proximal half of the penalty."""
    if strength < 0 or job.prox_mu:
        raise RecipeError(
            "procedure.fedsoft",
            f"{strength=}, local.prox_mu = {job.prox_mu}",
            "Give strength, leave prox_mu 0",
        )
    return replace(job, prox_mu=strength)


def corrections(
    memory: Memory,
    clients: Sequence[int],
    models: Params,
    num_weights: int,
    *,
    centres: int = 5,
    strength: float = 0.1,
    **rest: Any,
) -> Params:
    """lambda (w_k - sum_s u_ks c_s) for each client."""
    own = models[centres + np.asarray(clients), :num_weights]
    pulled = memory["shares"][list(clients)] @ models[:centres, :num_weights].astype(np.float64)
    return np.asarray(strength * (own - pulled), np.float32)


def after(
    memory: Memory,
    seen: Aftermath,
    *,
    centres: int = 5,
    draw: Draw = "importance",
    **rest: Any,
) -> tuple[Params, Ints, Memory]:
    """Keep each client's own model as it came back; move each centre to the mean of those drawn
    for it that answered.
    """
    models = np.array(seen.models)
    models[centres + seen.clients] = seen.returned
    for centre in range(centres):
        mine = memory["drawn"][centre, seen.clients]
        if mine.any():
            weights = np.ones(int(mine.sum()))
            if draw == "given":
                weights = (
                    memory["shares"][seen.clients[mine], centre]
                    * memory["examples"][seen.clients[mine]]
                )
            models[centre] = np.average(
                seen.returned[mine].astype(np.float64), axis=0, weights=weights
            )
    return models, seen.home, memory


fedsoft = Stateful(step, begin=begin, job=penalised, corrections=corrections, after=after)
