"""Choose few clients so that every client's update has a similar one among them.

Balakrishnan, Li, Zhou, Himayat, Smith, Bilmes: "Diverse Client Selection for Federated Learning via
Submodular Maximization", ICLR 2022, Algorithm 1: minimise G(S) = Σ_k min_{i∈S} ‖g_k - g_i‖
greedily, a facility location problem (docs/methods.md 4.13).

In the first round every client trains once and sends its update; later only those that were
selected refresh theirs.

Differs from the paper:

- g_k is the update of the round's own local training (one for all clients, from the first model),
  where the authors' code takes one gradient for the first round and updates afterwards: two
  quantities of different length that were compared.
- A client that was away is asked for its update in the first round it is there. One that fails is
  not asked again: it is chosen only to fill up, and known from the round it trains in.
- ``layer = "last"`` compares only the output layers: less to send and to keep (recommended above
  1,000 clients).
- At most 10,000 clients: all their distances are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedskew.errors import RecipeError, RunError
from fedskew.types import (
    AskUpdates,
    Bools,
    Feedback,
    Floats,
    Ints,
    Layer,
    Memory,
    Params,
    SelectionRule,
    View,
)

MOST_CLIENTS = 10_000  # 400 MB of distances
# candidates looked at together; for 50 out of 1,000 clients 8 took 1.2 to 1.3 times as long, 128
# 1.4 to 1.5 times
AT_ONCE = 32
FEATURES_AT_ONCE = 4096
SAME = 1e-12  # squared distances below this share of the squared lengths are rounding


@dataclass(frozen=True)
class DivFL(SelectionRule):
    """Clients whose updates stand for those of everybody (DivFL, ICLR 2022)."""

    layer: Literal["last", "all"] = "all"
    solver: Literal["lazy", "stochastic"] = "lazy"
    subsample: float = 0.1

    @property
    def learns_from(self) -> Layer:  # type: ignore[override]
        """The part of the updates that is compared."""
        return self.layer

    def choose(
        self, memory: Memory, view: View, rng: np.random.Generator
    ) -> tuple[Ints | AskUpdates, Memory]:
        """Strangers are asked for an update first; then the greedy choice."""
        self._check(view.size)
        kept = dict(memory) or {"asked": np.zeros(view.size, np.bool_)}
        strangers = np.flatnonzero(view.available & ~kept["asked"])
        if len(strangers) and not view.answers:
            return AskUpdates(strangers, self.layer), kept
        if view.answers:
            kept = _met(kept, view)
        known = kept.get("known", np.zeros(view.size, np.bool_))
        m = min(view.budget, int(view.available.sum()))
        chosen = self._represent(kept, np.flatnonzero(view.available & known), known, m, rng)
        rest = np.flatnonzero(view.available & ~known)
        filled = np.sort(rng.choice(rest, m - len(chosen), replace=False))
        return np.concatenate([chosen, filled]), kept

    def _represent(
        self, kept: Memory, candidates: Ints, known: Bools, m: int, rng: np.random.Generator
    ) -> Ints:
        """At most m candidates, near to everybody known."""
        if not len(candidates):
            return candidates
        size = len(known)
        between = kept["distances"]
        between = between if len(candidates) == size else between[candidates]
        between = between if known.all() else between[:, known]
        width = len(candidates)
        if self.solver == "stochastic":
            width = max(m, int(self.subsample * size))
        return candidates[_greedy(between, min(m, len(candidates)), width, rng)]

    def _check(self, size: int) -> None:
        if size > MOST_CLIENTS:
            remedy = f"Stay at {MOST_CLIENTS} or choose another selection"
            raise RunError("selection divfl", f"{size} clients", remedy)
        if not 0 < self.subsample <= 1:
            what = f"{self.subsample} is not a share"
            raise RecipeError("selection.subsample", what, "Give a number above 0 and up to 1")

    def learn(self, memory: Memory, feedback: Feedback) -> Memory:
        """Refresh the updates of the clients that trained."""
        return _refreshed(memory, feedback.clients, feedback.delta)


def _met(kept: dict[str, Any], view: View) -> dict[str, Any]:
    """The memory after strangers have answered."""
    answer = view.answers[-1]
    asked = np.array(kept["asked"])
    asked[answer.ask.clients] = True
    good = np.isfinite(answer.values).all(axis=1)
    return _refreshed(kept | {"asked": asked}, answer.ask.clients[good], answer.values[good])


def _refreshed(memory: Memory, clients: Ints, updates: NDArray[Any]) -> dict[str, Any]:
    """The memory with new updates of these clients, and their distances to everybody."""
    size = len(memory["asked"])
    if not len(clients):
        return dict(memory)
    all_updates: Params = np.array(
        memory.get("updates", np.zeros((size, updates.shape[1]), np.float32))
    )
    if updates.shape[1] != all_updates.shape[1]:
        what = f"updates of {updates.shape[1]} numbers after some of {all_updates.shape[1]}"
        raise RunError("selection divfl", what, "Use one selection.layer throughout")
    known = np.array(memory.get("known", np.zeros(size, np.bool_)))
    between: Params = np.array(memory.get("distances", np.zeros((size, size), np.float32)))
    all_updates[clients], known[clients] = updates, True
    between[clients] = distances_to(all_updates, clients)
    between[:, clients] = between[clients].T
    return {**memory, "updates": all_updates, "known": known, "distances": between}


def distances_to(points: Params, rows: Ints) -> Floats:
    """(n, K) Euclidean distances of some rows to all, added up in float64 over blocks of columns.

    >>> distances_to(np.array([[0, 0], [3, 4]], np.float32), np.array([0])).tolist()
    [[0.0, 5.0]]
    """
    product, length = np.zeros((len(rows), len(points))), np.zeros(len(points))
    for begin in range(0, points.shape[1], FEATURES_AT_ONCE):
        block = points[:, begin : begin + FEATURES_AT_ONCE].astype(np.float64)
        product += block[rows] @ block.T
        length += (block**2).sum(axis=1)
    both = length[rows, None] + length
    squares = both - 2 * product
    squares[(squares <= SAME * both) | (rows[:, None] == np.arange(len(points)))] = 0.0
    return np.sqrt(squares)


def _greedy(between: Params, m: int, width: int, rng: np.random.Generator) -> Ints:
    """Positions of ``m`` rows that greedily lower the sum over columns of the least distance; ties
    go to the lower position.

    A gain never grows as more are chosen, so an old gain bounds a new one: rows are looked at by
    their last known gain until no other can be better (lazy greedy). With fewer than all rows in
    ``width``, only that many random ones stand for choice.
    """
    if width < len(between):
        return _stochastic(between, m, width, rng)
    first = int(between.sum(axis=1, dtype=np.float64).argmin())
    chosen, nearest = [first], between[first].copy()
    bound: Params = np.full(len(between), np.inf, np.float32)
    bound[first] = -1.0
    while len(chosen) < m:
        order = np.argsort(-bound, kind="stable")
        if bound[order[0]] <= 0:  # nobody gains anything: all the same from here on
            return np.array(chosen + order[: m - len(chosen)].tolist(), np.int64)
        best = _laziest(between, nearest, bound, order[: len(between) - len(chosen)])
        chosen.append(best)
        bound[best] = -1.0
        np.minimum(nearest, between[best], out=nearest)
    return np.array(chosen, np.int64)


def _laziest(between: Params, nearest: Params, bound: Params, order: Ints) -> int:
    """The row that gains most, looking at no more rows than needed; ``bound`` is brought up to date
    for those looked at.

    The bound holds in float32 too: every term, and so every partial sum, can only fall as
    ``nearest`` falls.
    """
    best, most = -1, -1.0
    for begin in range(0, len(order), AT_ONCE):
        rows = np.sort(order[begin : begin + AT_ONCE])
        if bound[order[begin]] < most:
            break
        closer = between[rows]
        np.minimum(nearest, closer, out=closer)
        bound[rows] = np.subtract(nearest, closer, out=closer).sum(axis=1)
        leader = int(rows[bound[rows].argmax()])
        if bound[leader] > most or (bound[leader] == most and leader < best):
            best, most = leader, float(bound[leader])
    return best


def _stochastic(between: Params, m: int, width: int, rng: np.random.Generator) -> Ints:
    nearest, left = np.full(between.shape[1], np.inf), np.arange(len(between))
    chosen: list[int] = []
    while len(chosen) < m:
        rows = np.sort(rng.choice(left, min(width, len(left)), replace=False))
        best = int(rows[np.minimum(nearest, between[rows]).sum(axis=1, dtype=np.float64).argmin()])
        chosen.append(best)
        nearest, left = np.minimum(nearest, between[best]), left[left != best]
    return np.array(chosen, np.int64)
