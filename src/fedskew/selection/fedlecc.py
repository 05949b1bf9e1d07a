"""Take the clusters where the model is worst, and in each the clients where it is worst.

Jimenez-Gutierrez, Giunta, Hassanzadeh, Anagnostopoulos, Chatzigiannakis, Vitaletti: "FedLECC:
Cluster- and Loss-Guided Client Selection for Federated Learning under Non-IID Data", arXiv
2603.08911, 2026 (paper 000), Algorithm 1. docs/methods.md 4.6.

Differs from the paper:

- J and m are not given there; we recommend J = 5, m = 10 for 100 to 300 clients. J above the
  number of clusters means all of them; with J >= m the first m clusters give one client each, so J
  has no effect. Round 1 says so in the log.
- Losses are compared to twelve decimals, known ones and means alike; ties go to the lower id.
- Line 1 gives every cluster ceil(m / J) places, more than m in total when J does not divide m.
  ``overflow="balanced"`` gives floor(m / J), one more to the first m mod J clusters; ``"truncate"``
  is the literal text, cut off at m.
- If the fill of line 13 runs out of clusters, the rest of the top clusters fills the places, in the
  same order.
- Line 3 lets every client evaluate the model in every round (``loss_source="exact"``): K model
  downloads. The default ``"piggyback"`` uses the loss of the received model that trained clients
  report, ``"post"`` that of their own trained model, ``"subset"`` asks ``subset_size`` random
  clients; everybody else keeps the last value.
- A client that never reported counts with the mean of its cluster, or comes first
  (``unseen="explore"``); a cluster of which no available client ever reported comes first. While
  nothing at all is known, J random clusters give random clients (``init="random_per_cluster"``), or
  everyone is asked once (``"evaluate"``).
- ``ageing`` kappa multiplies a loss by 1 + kappa * age: rounds since the client last trained, 0 if
  it was asked in this round.
- A client that was asked and failed is left out, and one in no cluster too; both train only if
  places would stay empty.
- Losses are bounded before a rule sees them (questions.plausible): nobody can report its way to the
  top for ever.

Ablation (docs/methods.md 11.3): ``rank_clusters="random"`` and ``rank_clients="random"`` put chance
in the place of a loss; ``rank_clusters="ignore"`` makes all clients one cluster, which leaves the m
largest losses.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Literal

import numpy as np

from fedskew.errors import RecipeError
from fedskew.selection.groups import Groups, group, highest, labels_of
from fedskew.types import AskLoss, Bools, Floats, Ints, LossReport, View, declares, needs

logger = logging.getLogger(__name__)
# loss_source -> of the received or the trained model; "exact" asks everybody instead
REPORTS: dict[str, LossReport] = {"piggyback": "start", "subset": "start", "post": "end"}
Overflow = Literal["balanced", "truncate"]
DECIMALS = 12  # losses that agree to here are equal: ties go by id


def reported(options: Mapping[str, Any]) -> LossReport | None:
    """Which loss clients report with their models."""
    return REPORTS.get(options["loss_source"])


@needs("clustering", when=lambda options: ["loss"] if options["loss_source"] in REPORTS else [])
@declares(loss_report=reported)
def fedlecc(
    view: View,
    rng: np.random.Generator,
    *,
    top_clusters: int = 5,
    overflow: Overflow = "balanced",
    loss_source: Literal["exact", "piggyback", "post", "subset"] = "piggyback",
    subset_size: int = 20,
    init: Literal["random_per_cluster", "evaluate"] = "random_per_cluster",
    unseen: Literal["cluster_mean", "explore"] = "cluster_mean",
    ageing: float = 0.0,
    rank_clusters: Literal["loss", "random", "ignore"] = "loss",
    rank_clients: Literal["loss", "random"] = "loss",
) -> Ints | AskLoss:
    """``view.budget`` clients, cluster by cluster from the worst; ``top_clusters`` is J."""
    _check(top_clusters, subset_size, ageing)
    if not view.available.any():
        return np.empty(0, np.int64)
    by_loss = rank_clusters != "random" or rank_clients == "loss"
    if by_loss and not view.answers:
        everyone = loss_source == "exact" or (init == "evaluate" and np.isnan(view.loss).all())
        if everyone or loss_source == "subset":
            return AskLoss(_draw(view, rng, view.size if everyone else subset_size))
    labels = (
        labels_of(view, "fedlecc") if rank_clusters != "ignore" else np.zeros(view.size, np.int64)
    )
    if view.round == 1 and rank_clusters != "ignore":
        _say_if_clamped(top_clusters, int(labels.max(initial=-1)) + 1, view.budget)
    loss, usable = aged_loss(view, ageing), view.available & ~failed(view)
    grouped = group(np.flatnonzero(usable if usable.any() else view.available), labels)
    values, means, first = rate(grouped, loss, explore=unseen == "explore")
    nothing_known = np.isnan(loss[grouped.clients]).all()
    if nothing_known or rank_clients == "random":
        values = rng.random(len(values))
    if nothing_known or rank_clusters == "random":
        means, first = rng.random(len(means)), np.zeros(len(means), np.bool_)
    # line 13 never gets further: each has a client to give
    ranked = rank(grouped, means, first, top_clusters + view.budget)
    chosen = algorithm_1(grouped, values, ranked, view.budget, top_clusters, overflow)
    return _fill_up(chosen, view, usable)


def aged_loss(view: View, ageing: float) -> Floats:
    """(K,) last known losses, larger the longer ago a client trained; nan = never reported."""
    if ageing == 0:
        return view.loss
    age = view.round - view.last_selected
    if view.answers:
        age[view.answers[-1].ask.clients] = 0
    return view.loss * (1 + ageing * age)


def failed(view: View) -> Bools:
    """(K,) who was asked for its loss in this round and gave none."""
    without = np.zeros(view.size, np.bool_)
    if view.answers:
        without[view.answers[-1].ask.clients] = np.isnan(view.answers[-1].values)
    return without


def rate(grouped: Groups, loss: Floats, *, explore: bool) -> tuple[Floats, Floats, Bools]:
    """What clients (n,) count with, mean known loss per cluster (k,), which clusters come first.

    >>> grouped = group(np.arange(5), np.array([0, 0, 1, 1, 2]))
    >>> rate(grouped, np.array([1.0, np.nan, 2.0, 4.0, np.nan]), explore=False)
    (array([ 1.,  1.,  2.,  4., inf]), array([ 1.,  3., inf]), array([False, False, False]))
    >>> rate(grouped, np.array([1.0, np.nan, 2.0, 4.0, np.nan]), explore=True)
    (array([ 1., inf,  2.,  4., inf]), array([ 1.,  3., inf]), array([ True, False,  True]))
    """
    own, k = np.repeat(np.arange(len(grouped.sizes)), grouped.sizes), len(grouped.sizes)
    given = loss[grouped.clients]
    seen = ~np.isnan(given)
    count = np.bincount(own[seen], minlength=k)
    total = np.bincount(own[seen], given[seen], minlength=k)
    means = np.where(count > 0, total / np.maximum(count, 1), np.inf)
    values = np.where(seen, given, np.inf if explore else means[own])
    # rounded both, so that equal losses tie with their mean: (0.1 + 0.1 + 0.1) / 3 is not 0.1
    return values.round(DECIMALS), means.round(DECIMALS), explore & (count < grouped.sizes)


def rank(grouped: Groups, means: Floats, first: Bools, count: int) -> Ints:
    """The ``count`` clusters that lead the ranking: those marked ``first``, then by mean, ties
    to the lower number.
    """
    there = grouped.sizes > 0
    parts = [np.flatnonzero(there & first), np.flatnonzero(there & ~first)]
    return np.concatenate([part[highest(means[part], count)] for part in parts])[:count]


def algorithm_1(
    grouped: Groups, values: Floats, ranked: Ints, budget: int, top: int, overflow: Overflow
) -> Ints:
    """Lines 8 to 15 for clusters already ``ranked``.

    ``values`` (n,) rank the clients of ``grouped``, largest first.
    """
    m, top = min(budget, len(grouped.clients)), min(top, len(ranked))
    chosen: list[int] = []
    for cluster, begin, end in wishes(ranked, m, top, overflow):
        left = m - len(chosen)
        if left == 0:
            break
        own = slice(grouped.starts[cluster], grouped.starts[cluster + 1])
        best = highest(values[own], min(end, begin + left))[begin:]
        chosen.extend(grouped.clients[own][best].tolist())
    return np.array(chosen, np.int64)


def wishes(ranked: Ints, m: int, top: int, overflow: Overflow) -> Iterator[tuple[int, int, int]]:
    """(cluster, begin, end): places begin..end-1 of that cluster's ranking, in order of taking.

    >>> list(wishes(np.array([1, 0, 2]), 5, 2, "balanced"))
    [(1, 0, 3), (0, 0, 2), (2, 0, 5), (1, 3, 8), (0, 2, 7)]
    """
    if top == 0:
        return iter(())
    each = (
        m // top + (np.arange(top) < m % top)
        if overflow == "balanced"
        else np.full(top, -(-m // top))
    )
    best = list(zip(ranked[:top].tolist(), each.tolist(), strict=True))
    return chain(
        ((cluster, 0, quota) for cluster, quota in best),
        ((cluster, 0, m) for cluster in ranked[top:].tolist()),
        ((cluster, quota, quota + m) for cluster, quota in best),
    )


def _fill_up(chosen: Ints, view: View, usable: Bools) -> Ints:
    """Places nobody else wanted go to clients in no cluster, then to those that failed to
    report, largest loss first.
    """
    missing = min(view.budget, int(view.available.sum())) - len(chosen)
    if missing <= 0:
        return chosen
    rest = view.available.copy()
    rest[chosen] = False
    ids = np.flatnonzero(rest)
    loss = np.where(np.isnan(view.loss[ids]), -np.inf, view.loss[ids])
    order = np.lexsort((-loss, ~usable[ids]))
    return np.concatenate([chosen, ids[order[:missing]]])


def _draw(view: View, rng: np.random.Generator, count: int) -> Ints:
    """``count`` random available clients, ids ascending."""
    there = np.flatnonzero(view.available)
    return there if count >= len(there) else np.sort(rng.choice(there, count, replace=False))


def _say_if_clamped(top_clusters: int, clusters: int, budget: int) -> None:
    if top_clusters > clusters:
        logger.warning(
            "selection.top_clusters: %d, but there are %d clusters. All of them count.",
            top_clusters,
            clusters,
        )
    if min(top_clusters, clusters) >= budget:
        logger.warning(
            "selection.top_clusters: %d, but only %d clients a round. "
            "The first %d clusters give one client each.",
            top_clusters,
            budget,
            budget,
        )


def _check(top_clusters: int, subset_size: int, ageing: float) -> None:
    for name, value, least in (
        ("top_clusters", top_clusters, 1),
        ("subset_size", subset_size, 1),
        ("ageing", ageing, 0),
    ):
        if value < least:
            raise RecipeError(
                f"selection.{name}", f"{value} is too small", f"Give at least {least}"
            )
