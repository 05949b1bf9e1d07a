"""Group clients by how training moves the output bias; draw from groups that seem balanced.

Chen, Vikalo: "Heterogeneity-Guided Client Sampling: Towards Fast and Efficient Non-IID Federated
Learning" (HiCS-FL), NeurIPS 2024 (arXiv 2310.00198), Algorithm 1; docs/methods.md 4.14. With D_k
the last update of the output bias, eqs 7, 9 and 10:

    H_k = entropy(softmax(D_k / temperature))
    distance(u, k) = arccos(cos(D_u, D_k)) + penalty |H_u - H_k|  -> clusters
    P(cluster) ~ exp(gamma_t * mean of H in it),   gamma_t = gamma (1 - t / T)
    P(client in the cluster) ~ its examples

First everybody is drawn once. This rule reads label information out of updates: the threat note of
docs/methods.md 8 applies.

Differs from the paper:
- ``temperature`` must fit the size of the updates. The paper's 0.0025 goes with learning rate 0.001
  and about 38 steps, that is 0.066 * rate * steps; set it by that rule.
- A rule does not know the number of rounds: ``anneal_rounds`` is T; 0 keeps gamma constant.
- Ward's method is run on the distances of eq 9 (the authors' code takes rows of the distance matrix
  for points, and means of weight rows for D). ``clusters`` = 0 is their choice, one per client to
  draw.
- Clusters are drawn one slot at a time from those that have clients left, so the m clients are
  distinct. A client that was never asked is drawn first, whenever it appears; one that was asked
  but never answered counts with the mean H, no direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import scipy

from fedskew.errors import RecipeError, RunError
from fedskew.types import Bools, Feedback, Floats, Ints, Memory, SelectionRule, View

Linkage: TypeAlias = Literal["ward", "average", "complete"]


@dataclass(frozen=True)
class HiCS(SelectionRule):
    """Clients from clusters of like bias updates, balanced clusters more often, in the order of
    choice (HiCS-FL, NeurIPS 2024).

    ``penalty`` is lambda of eq 9, ``anneal_rounds`` the number of rounds after which gamma is 0.
    """

    temperature: float = 0.0025
    penalty: float = 10.0
    gamma: float = 4.0
    anneal_rounds: int = 0
    clusters: int = 0
    method: Linkage = "ward"

    learns_from = "last"

    def choose(self, memory: Memory, view: View, rng: np.random.Generator) -> tuple[Ints, Memory]:
        """Who was never asked, then draws from the clusters."""
        if self.temperature <= 0:
            what = f"{self.temperature} is not positive"
            remedy = "About 0.066 * local.lr * steps a round"
            raise RecipeError("selection.temperature", what, remedy)
        known = dict(memory) if memory else {"seen": np.zeros(view.size, np.bool_)}
        candidates = np.flatnonzero(view.available)
        m = min(view.budget, len(candidates))
        never_asked = ~known["seen"][candidates] & (view.times_selected[candidates] == 0)
        untried = rng.permutation(candidates[never_asked])[:m]
        rest = np.setdiff1d(candidates, untried, assume_unique=True)
        places = m - len(untried)
        if not places or "bias" not in known:
            return np.concatenate([untried, rng.permutation(rest)[:places]]), known
        bias, seen = known["bias"][rest], known["seen"][rest]
        entropies = fill_unknown(entropy_of(bias, self.temperature), seen)
        number = min(self.clusters or view.budget, len(rest))
        labels = cluster(bias, entropies, self.penalty, number, self.method)
        heat = self._gamma(view.round) * entropies
        drawn = draw(labels, heat, view.population.num_examples[rest], places, rng)
        return np.concatenate([untried, rest[drawn]]), known

    def _gamma(self, round: int) -> float:
        if not self.anneal_rounds:
            return self.gamma
        return self.gamma * max(0.0, 1 - round / self.anneal_rounds)

    def learn(self, memory: Memory, feedback: Feedback) -> Memory:
        """Remember the last update of the output bias of every client that answered."""
        classes, width = feedback.head_shape
        if feedback.delta.shape[1] != classes * width + classes:
            what = "the model's output layer has no bias"
            raise RunError("selection hics", what, "Use a model whose last layer has one")
        seen = memory["seen"].copy()
        bias = memory.get("bias", np.zeros((len(seen), classes))).copy()
        bias[feedback.clients] = feedback.delta[:, -classes:]
        seen[feedback.clients] = True
        return {"seen": seen, "bias": bias}


def entropy_of(updates: Floats, temperature: float) -> Floats:
    """Entropy in nats of softmax(row / temperature): ln C for a client that seems balanced.

    >>> entropy_of(np.array([[0.0, 0.0], [9.0, -9.0]]), 1.0).round(3).tolist()
    [0.693, 0.0]
    """
    logits = (updates - updates.max(axis=1, keepdims=True)) / temperature
    powers = np.exp(logits)
    total = powers.sum(axis=1)
    return np.asarray(np.log(total) - (powers * logits).sum(axis=1) / total, np.float64)


def fill_unknown(entropies: Floats, seen: Bools) -> Floats:
    """The mean of the others for clients whose update is not known."""
    return np.where(seen, entropies, entropies[seen].mean() if seen.any() else 0.0)


def cluster(
    updates: Floats, entropies: Floats, penalty: float, number: int, method: Linkage
) -> Ints:
    """Labels 0.. of hierarchical clusters by eq 9, at most ``number`` of them."""
    if len(updates) < 2:
        return np.zeros(len(updates), np.int64)
    tree = scipy.cluster.hierarchy.linkage(distances_of(updates, entropies, penalty), method)
    return scipy.cluster.hierarchy.fcluster(tree, number, criterion="maxclust").astype(np.int64) - 1


def distances_of(updates: Floats, entropies: Floats, penalty: float) -> Floats:
    """Eq 9 for all pairs, in the order of ``scipy.spatial.distance.pdist``. A zero update is at
    right angles to all others.

    In place and with float32 angles, which are right to 5e-4 of a radian: at K = 1,000 5 ms instead
    of 15.
    """
    lengths = np.linalg.norm(updates, axis=1, keepdims=True)
    directions = (updates / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    angles = scipy.spatial.distance.squareform(directions @ directions.T, checks=False)
    np.clip(angles, -1.0, 1.0, out=angles)
    np.arccos(angles, out=angles)
    distances: Floats = scipy.spatial.distance.pdist(entropies[:, None], "cityblock")
    distances *= penalty
    distances += angles
    return distances


def draw(labels: Ints, heat: Floats, num_examples: Ints, m: int, rng: np.random.Generator) -> Ints:
    """m distinct positions: for each a cluster ~ exp(mean heat), then a member ~ examples."""
    size = np.bincount(labels).astype(np.float64)
    means = np.bincount(labels, weights=heat) / size
    # a weighted draw without replacement inside each cluster, all at once: the largest log(u) /
    # weight come first
    keys = np.log(1 - rng.random(len(labels))) / np.maximum(num_examples, 1)
    order = np.lexsort((-keys, labels))
    begin, taken = (
        np.searchsorted(labels[order], np.arange(len(size))),
        np.zeros(len(size), np.int64),
    )
    chosen = np.empty(m, np.int64)
    for place, mark in enumerate(rng.random(m)):
        left = np.where(taken < size, means, -np.inf)
        edges = np.cumsum(np.exp(left - left.max()))
        slot = int(np.searchsorted(edges, (1 - mark) * edges[-1]))
        chosen[place] = order[begin[slot] + taken[slot]]
        taken[slot] += 1
    return chosen
