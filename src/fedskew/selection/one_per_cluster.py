"""One random client of every cluster, so that every kind of client is heard in every round.

Paper 002 (similarity study): clusters are made once, before training; each round trains one
uniformly random client of each, so the number of clients per round is the number of clusters and
``run.clients_per_round`` is not used. docs/methods.md 4.7.

Differs from the paper:

- ``number="budget"`` fills exactly ``run.clients_per_round`` places: every cluster once in random
  order, then every cluster a second time, and so on. The fair comparison with other rules at the
  same number of clients.
- ``groups="random"`` deals the clients anew into groups of the same sizes, once, before the first
  round: the control that says whether the clusters mean anything (docs/methods.md 11.7). At the
  same number of clients, drawing from such groups is stratified sampling without information.
- Clients in no cluster (the noise policy ``drop``) train only if places would stay empty without
  them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedskew.selection.groups import Groups, group, labels_of
from fedskew.types import Ints, Memory, SelectionRule, View


@dataclass(frozen=True)
class OnePerCluster(SelectionRule):
    """One client of each cluster that has one available, or ``view.budget`` clients.

    By cluster, pass after pass.
    """

    number: Literal["clusters", "budget"] = "clusters"
    groups: Literal["clusters", "random"] = "clusters"

    def needs(self) -> Collection[str]:
        """Groups to draw from."""
        return ("clustering",)

    def choose(self, memory: Memory, view: View, rng: np.random.Generator) -> tuple[Ints, Memory]:
        """A fresh draw from every group."""
        labels = labels_of(view, "one_per_cluster")
        if self.groups == "random":
            labels = memory["labels"] if "labels" in memory else rng.permutation(labels)
            memory = {"labels": labels}
        candidates = rng.permutation(np.flatnonzero(view.available))
        grouped = group(candidates, labels)
        if self.number == "clusters":
            wanted, chosen = 1, grouped.first(np.ones_like(grouped.sizes))
        else:
            wanted, chosen = view.budget, _passes(grouped, view.budget, rng)
        if len(chosen) < wanted:
            homeless = candidates[labels[candidates] < 0]
            chosen = np.concatenate([chosen, homeless[: wanted - len(chosen)]])
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
