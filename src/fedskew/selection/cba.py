"""Guess each client's label mix from how its returned model reacts to a small balanced set of the
server's own, then choose a balanced group, trying little-known clients now and then.

Yang, Wang, Zhu, Wang, Qian: "Federated Learning with Class Imbalance Reduction", EUSIPCO 2021
(arXiv 2011.11266), the benchmark "CBA" of paper 001; docs/methods.md 4.9. For every model that
comes back, with |g_c|^2 the squared gradient of output row c on the auxiliary set: R_k =
softmax_c(beta |g_c|^2), averaged over the client's visits with forgetting ``rho``; reward r_k = 1 /
KL(R_k || uniform). A round starts with the best UCB score r_k + lambda sqrt(3 ln t / (2 T_k)), T_k
visits so far, and adds, m - 1 times, the client that brings the mean of R over the group nearest to
uniform.

NEEDS AUXILIARY DATA (``data.auxiliary``), which is what paper 001 holds against it.

Differs from the paper:
- Known to us from paper 001 and second-hand notes, not re-read: constants are theirs (beta = 1
  after scaling the norms of a client to a maximum of 1, rho = 0.99) and lambda = 1 is ours.
- The gradient of row c is taken over the whole auxiliary set. It is large for classes the client's
  model names too often, so R grows with the client's share of a class: correlation 0.97 after 6
  rounds of digits with 2 classes a client (0.34 after 1).
- A client never heard of counts as uniform and has an infinite score: one is tried in every round
  until all are known. Ties are broken at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedskew.errors import RecipeError
from fedskew.types import Feedback, Floats, Ints, Memory, SelectionRule, View

KL_FLOOR = 1e-9  # an exactly uniform client would earn an infinite reward


@dataclass(frozen=True)
class CBA(SelectionRule):
    """A group that seems balanced by how models react to the server's own examples, in the order
    of choice (EUSIPCO 2021).

    ``exploration`` is lambda; ``beta`` and ``rho`` shape what is learnt.
    """

    beta: float = 1.0
    rho: float = 0.99
    exploration: float = 1.0

    learns_from = "none"
    uses_auxiliary = True

    def choose(self, memory: Memory, view: View, rng: np.random.Generator) -> tuple[Ints, Memory]:
        """The client with the best score, then those that complete it."""
        if not 0 < self.rho <= 1:
            what = f"{self.rho} is not between 0 and 1"
            raise RecipeError("selection.rho", what, "Give for example 0.99")
        known = dict(memory) if memory else {"visits": np.zeros(view.size)}
        # the first of equals is then a random one
        candidates = rng.permutation(np.flatnonzero(view.available))
        m = min(view.budget, len(candidates))
        if m == 0:
            return candidates, known
        mixes = np.full((len(candidates), 2), 0.5)
        if "mixes" in known:
            mixes = known["mixes"][candidates]
        scores = ucb_scores(mixes, known["visits"][candidates], view.round, self.exploration)
        return candidates[group_near_uniform(mixes, int(np.argmax(scores)), m)], known

    def learn(self, memory: Memory, feedback: Feedback) -> Memory:
        """Take in the reactions of the models that came back.

        A model whose reaction is not finite teaches nothing.
        """
        if feedback.class_gradients is None:
            return memory
        usable = np.isfinite(feedback.class_gradients).all(axis=1)
        clients = feedback.clients[usable]
        fresh = composition(feedback.class_gradients[usable], self.beta)
        size, classes = len(memory["visits"]), feedback.class_gradients.shape[1]
        visits = memory["visits"].copy()
        weight = memory.get("weight", np.zeros(size)).copy()
        mixes = memory.get("mixes", np.full((size, classes), 1 / classes)).copy()
        visits[clients] += 1
        old = self.rho * weight[clients]
        weight[clients] = old + 1
        mixes[clients] = (old[:, None] * mixes[clients] + fresh) / weight[clients][:, None]
        return {"visits": visits, "weight": weight, "mixes": mixes}


def ucb_scores(mixes: Floats, visits: Floats, round: int, exploration: float) -> Floats:
    """Reward plus exploration bonus; infinite for clients never heard of."""
    reward = 1 / np.maximum(divergence(mixes), KL_FLOOR)
    bonus = np.sqrt(3 * np.log(round) / (2 * np.maximum(visits, 1)))
    return np.where(visits > 0, reward + exploration * bonus, np.inf)


def divergence(mixes: Floats) -> Floats:
    """KL(row || uniform) in nats of every row; rows are positive.

    >>> divergence(np.array([[0.5, 0.5], [0.9, 0.1]])).round(3).tolist()
    [0.0, 0.368]
    """
    terms: Floats = mixes * np.log(mixes * mixes.shape[-1])
    return np.asarray(terms.sum(axis=-1), np.float64)


def group_near_uniform(mixes: Floats, first: int, m: int) -> Ints:
    """``first``, then m - 1 times the row that brings the group's mean nearest to uniform."""
    chosen, total, free = np.empty(m, np.int64), np.zeros(mixes.shape[1]), np.zeros(len(mixes))
    chosen[0] = first
    for place in range(1, m):
        total, free[chosen[place - 1]] = total + mixes[chosen[place - 1]], np.inf
        chosen[place] = int(np.argmin(divergence((total + mixes) / (place + 1)) + free))
    return chosen


def composition(squared_norms: Floats, beta: float) -> Floats:
    """(n, C) guessed label mixes: softmax of the norms, scaled to a maximum of 1 for each client.

    >>> composition(np.array([[4.0, 0.0], [0.0, 0.0]]), 1.0).round(3).tolist()
    [[0.731, 0.269], [0.5, 0.5]]
    """
    top = squared_norms.max(axis=1, keepdims=True, initial=0.0)
    powers = np.exp(beta * (squared_norms / np.where(top > 0, top, 1.0) - 1))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float64)
