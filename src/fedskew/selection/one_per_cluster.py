"""One random client of every cluster, so that every kind of client is heard in every round.

Paper 002 (similarity study): clusters are made once, before training; each round trains one
uniformly random client of each, so the number of clients per round is the number of clusters and
``run.clients_per_round`` is not used. METHODS 4.7.

Differs from the paper:

- ``number="budget"`` fills exactly ``run.clients_per_round`` places: every cluster once in random
  order, then every cluster a second time, and so on. The fair comparison with other rules at the
  same number of clients.
- ``groups="random"`` deals the clients anew into groups of the same sizes, once, before the first
  round: the control that says whether the clusters mean anything (METHODS 11.7). At the same number
  of clients, drawing from such groups is stratified sampling without information.
- Clients in no cluster (the noise policy ``drop``) train only if places would stay empty without
  them.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedskew.selection.groups import Groups, group, labels_of
from fedskew.types import Ints, Memory, Stateful, View, needs


@needs("clustering")
def choose(
    memory: Memory,
    view: View,
    rng: np.random.Generator,
    *,
    number: Literal["clusters", "budget"] = "clusters",
    groups: Literal["clusters", "random"] = "clusters",
) -> tuple[Ints, Memory]:
    """One client of each cluster that has one available, by cluster; or ``view.budget`` clients,
    pass after pass.
    """
    labels = labels_of(view, "one_per_cluster")
    if groups == "random":
        labels = memory["labels"] if "labels" in memory else rng.permutation(labels)
        memory = {"labels": labels}
    there = rng.permutation(np.flatnonzero(view.available))
    grouped = group(there, labels)
    chosen = (
        grouped.first(np.ones_like(grouped.sizes))
        if number == "clusters"
        else _passes(grouped, view.budget, rng)
    )
    wanted = view.budget if number == "budget" else 1
    if len(chosen) < wanted:
        chosen = np.concatenate([chosen, there[labels[there] < 0][: wanted - len(chosen)]])
    return chosen, memory


def _passes(grouped: Groups, budget: int, rng: np.random.Generator) -> Ints:
    """Every group once in random order, then every group that has more a second time ..., until
    the budget is spent.
    """
    # nobody behind place m can be among the first m
    near = grouped.first(np.full_like(grouped.sizes, budget))
    place = grouped.places[grouped.places < budget]
    turn = np.repeat(rng.permutation(len(grouped.sizes)), np.minimum(grouped.sizes, budget))
    return near[np.lexsort((turn, place))[:budget]]


one_per_cluster = Stateful(choose)
"""The rule as recipes name it."""
