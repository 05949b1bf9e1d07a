"""Draw clusters by how slow and badly served they are; of each take the fastest client.

Wolfrath, Sreekumar, Kumar, Wang, Chandra: "HACCS: Heterogeneity-Aware Clustered Client Selection
for Accelerated Federated Learning", IPDPS 2022, and the authors' public code. A cluster's weight is
theta_c = rho (1 - lat_c / max lat) + (1 - rho) loss_c / sum loss, over the means of its available
members; each of the m places goes to a cluster drawn in proportion to theta, with replacement, and
there to its fastest client not yet taken. docs/methods.md 4.3.

Differs from the paper:

- ``variant="official"`` follows the authors' code: mean SQUARED losses, and every cluster is first
  given floor(m theta_c / sum theta) places; only the rest is drawn.
- Losses are those reported when a client last trained. A client that never trained counts with
  ``initial_loss``, above every loss a client may report, so clusters without experience are drawn
  first.
- If every weight left is 0 (one cluster and rho = 1: the slowest cluster has weight 0), clusters
  are drawn alike.
- rho = 0.5 in the authors' code; paper 004 found 0.95 best.
- Clients in no cluster train only if places would stay empty, fastest first; the paper makes each
  of them a cluster of its own (``clustering.noise = "singletons"``).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedskew.errors import RecipeError, RunError
from fedskew.selection.groups import Groups, group, labels_of
from fedskew.types import Floats, Ints, View, needs


@needs("clustering", "latency", "loss")
def haccs(
    view: View,
    rng: np.random.Generator,
    *,
    rho: float = 0.5,
    variant: Literal["paper", "official"] = "paper",
    initial_loss: float = 100.0,
) -> Ints:
    """``view.budget`` clients in the order of the draws; under ``official`` those of the
    guaranteed places come first.
    """
    if not 0 <= rho <= 1:
        raise RecipeError("selection.rho", f"{rho} is not a weight", "Give a number from 0 to 1")
    labels, latency = labels_of(view, "haccs"), _latency(view)
    candidates = np.flatnonzero(view.available)
    candidates = candidates[
        np.argsort(latency[candidates], kind="stable")
    ]  # fastest first, ties to the lower id
    grouped = group(candidates, labels)
    loss = np.where(np.isnan(view.loss), initial_loss, view.loss)
    theta = weights(grouped, latency, loss**2 if variant == "official" else loss, rho)
    chosen = fill(grouped, theta, view.budget, rng, guarantee=variant == "official")
    return np.concatenate([chosen, candidates[labels[candidates] < 0][: view.budget - len(chosen)]])


def weights(grouped: Groups, latency: Floats, loss: Floats, rho: float) -> Floats:
    """(k,) theta; 0 for a cluster without available members."""
    cluster_of, size = (
        np.repeat(np.arange(len(grouped.sizes)), grouped.sizes),
        np.maximum(grouped.sizes, 1),
    )
    mean_latency = np.bincount(cluster_of, latency[grouped.clients], minlength=len(size)) / size
    mean_loss = np.bincount(cluster_of, loss[grouped.clients], minlength=len(size)) / size
    speed = 1 - mean_latency / max(mean_latency.max(initial=0.0), 1e-300)
    need = mean_loss / max(mean_loss.sum(), 1e-300)
    return np.where(grouped.sizes > 0, rho * speed + (1 - rho) * need, 0.0)


def fill(
    grouped: Groups, theta: Floats, budget: int, rng: np.random.Generator, *, guarantee: bool
) -> Ints:
    """Clients of clusters drawn by theta; with ``guarantee`` first every cluster's whole share."""
    taken = np.zeros_like(grouped.sizes)
    if guarantee and theta.sum() > 0:
        # 1e-9: 0.7 / 0.1 must not be 6 places
        taken = np.floor(budget * theta / theta.sum() + 1e-9).astype(np.int64)
    chosen = grouped.first(taken).tolist()
    while len(chosen) < min(budget, len(grouped.clients)):
        left = taken < grouped.sizes
        mass = np.where(left, theta, 0.0)
        mass = mass if mass.sum() > 0 else left.astype(np.float64)
        drawn = rng.choice(len(mass), p=mass / mass.sum())
        chosen.append(grouped.clients[grouped.starts[drawn] + taken[drawn]])
        taken[drawn] += 1
    return np.array(chosen, np.int64)


def _latency(view: View) -> Floats:
    """(K,) seconds; a client whose latency is not known counts as slow as the slowest."""
    latency = view.population.latency_seconds
    if latency is None:
        raise RunError(
            "selection haccs", "latencies are not known", "Set devices.classes = 'haccs'"
        )
    slowest = latency[~np.isnan(latency)].max(initial=0.0)
    return np.where(np.isnan(latency), slowest, latency)
