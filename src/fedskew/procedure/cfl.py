"""A group whose clients pull in opposite directions splits in two (clustered FL).

Sattler, Mueller, Samek: "Clustered Federated Learning: Model-Agnostic Distributed Multitask
Optimization Under Privacy Constraints", IEEE TNNLS 2021, Algorithms 1 and 2; docs/methods.md 7.2.
In each round, for each group, on the updates dW_i of its members that took part (trained minus
received model): the norm of the MEAN update below ``eps1`` (the group has converged) and the
largest norm above ``eps2`` (its members have not), more than two members, after round
``min_round``: complete linkage on the cosines divides the members in two, and the group splits if
``gamma`` < sqrt((1 - a) / 2), a = the largest cosine across the division. Both parts go on from the
group's model.

The defaults are those of the authors' notebook. With those of paper 004 (eps1 = 1e-5, eps2 = 0.1),
and the mean of the norms in place of the norm of the mean, as in the public code next to that
paper, a split needs more than 10,000 clients.

Differs from the paper:

- ``eps_mode = "relative"``: eps1 and eps2 are multiples of the median norm of the mean update in
  rounds 2 to 5.
- Partial participation: members that did not take part in the round of a split go to the part with
  the higher mean cosine to their last update, which is kept whole, or only its output layer
  (``cache``); without one they go to the larger part.
- An update of zero has cosine 0 to all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedskew.errors import RunError
from fedskew.procedure.local_only import check_room
from fedskew.types import (
    Aftermath,
    Bools,
    Chain,
    Floats,
    Ints,
    Memory,
    Params,
    Plan,
    ProcedureRule,
    View,
)

BASE_ROUNDS = (2, 5)  # first and last round whose norms set the scale of eps_mode = "relative"


@dataclass(frozen=True)
class CFL(ProcedureRule):
    """One chain of length one per selected client, on its group's model; at first one group."""

    eps1: float = 0.4
    eps2: float = 1.6
    eps_mode: Literal["absolute", "relative"] = "absolute"
    gamma: float = 0.5
    min_round: int = 20
    weights: Literal["examples", "uniform"] = "examples"
    cache: Literal["all", "last", "none"] = "all"

    several_models = True
    looks_back = True

    def plan(
        self, memory: Memory, ids: Ints, view: View, rng: np.random.Generator
    ) -> tuple[Plan, Memory]:
        """Everybody on the model of its group."""
        home = memory.get("home", np.zeros(view.size, np.int64))
        return Plan(tuple(Chain(int(home[c]), (int(c),)) for c in ids), home=home), memory

    def after(self, memory: Memory, seen: Aftermath) -> tuple[Params, Ints, Memory]:
        """Split every group that has stopped moving while its members have not."""
        models, home = list(seen.models), seen.home.copy()
        norms = list(memory.get("norms", []))
        kept = remember_updates(memory.get("cache", {}), seen, self.cache)
        updates = seen.updates.astype(np.float64)
        for slot in sorted(set(seen.slots.tolist())):
            mine = np.flatnonzero(seen.slots == slot)
            mean_norm = self._mean_norm(updates[mine], seen.examples[mine])
            if BASE_ROUNDS[0] <= seen.round <= BASE_ROUNDS[1]:
                norms.append(mean_norm)
            members = np.flatnonzero(home == slot)
            stalled = self._has_stalled(mean_norm, updates[mine], norms, seen.round)
            if not (stalled and len(members) > 2 and len(mine) > 1 and seen.round > self.min_round):
                continue
            cosines = cosine_matrix(updates[mine])
            second = bipartition(cosines)
            across = float(cosines[np.ix_(~second, second)].max())
            if self.gamma < np.sqrt((1 - min(across, 1.0)) / 2):
                models.append(seen.models[slot])
                parts = part_of(seen, mine, self.cache)
                moved = follow(members, seen.clients[mine], second, kept, parts)
                home[moved] = len(models) - 1
        return np.stack(models), home, {"home": home, "norms": norms, "cache": kept}

    def _mean_norm(self, updates: Floats, examples: Ints) -> float:
        """Length of the mean update of a group."""
        shares = np.ones(len(updates))
        if self.weights == "examples":
            shares = examples.astype(np.float64)
        return float(np.linalg.norm(np.average(updates, axis=0, weights=shares)))

    def _has_stalled(
        self, mean_norm: float, updates: Floats, norms: Sequence[float], round: int
    ) -> bool:
        """Whether a group stands still while its members do not."""
        scale = 1.0
        if self.eps_mode == "relative":
            known = bool(norms) and round >= BASE_ROUNDS[1]
            scale = float(np.median(norms)) if known else np.nan
        largest = float(np.linalg.norm(updates, axis=1).max())
        return mean_norm < self.eps1 * scale and largest > self.eps2 * scale


def part_of(seen: Aftermath, rows: Ints, cache: str) -> Floats:
    """(n, F) the part of these updates that is kept between rounds."""
    whole = seen.updates[rows].astype(np.float64)
    if cache == "none":
        return whole[:, :0]
    if cache == "last" and seen.head:
        return np.concatenate([whole[:, part] for part in seen.head], axis=1)
    return whole


def remember_updates(old: Memory, seen: Aftermath, cache: str) -> Memory:
    """The last update of every client that ever trained, or of its output layer."""
    if cache == "none" or not len(seen.clients):
        return old
    parts = part_of(seen, np.arange(len(seen.clients)), cache).astype(np.float32)
    try:
        check_room("procedure cfl", len(seen.home), parts.shape[1])
    except RunError as error:
        raise RunError(
            "procedure.cache", str(error), "Set procedure.cache = 'last' or 'none'"
        ) from None
    return {**old, **{str(client): row for client, row in zip(seen.clients, parts, strict=True)}}


def cosine_matrix(updates: Floats) -> Floats:
    """(n, n) cosines; 0 for an update of zero.

    >>> cosine_matrix(np.array([[2.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]))[0]
    array([ 1., -1.,  0.])
    """
    unit = _unit(updates)
    return np.asarray(unit @ unit.T)


def _unit(updates: Floats) -> Floats:
    norms = np.linalg.norm(updates, axis=1, keepdims=True)
    return np.asarray(updates / np.where(norms > 0, norms, 1.0))


def bipartition(cosines: Floats) -> Bools:
    """(n,) which clients are in the second of two groups by complete linkage, the two that its last
    merge puts together; the first client is always in the first group.

    Where merges tie, any tree of equal heights is one of complete linkage, and scipy's is taken.
    All of them keep identical clients together: they merge first.

    >>> bipartition(np.array([[1.0, 0.9, -0.8], [0.9, 1.0, -0.7], [-0.8, -0.7, 1.0]]))
    array([False, False,  True])
    """
    # 0.1 s to import: only for a run that comes this far
    from scipy.cluster.hierarchy import cut_tree, linkage
    from scipy.spatial.distance import squareform

    distances = np.maximum(1 - (cosines + cosines.T) / 2, 0)
    # the diagonal is not looked at
    groups = cut_tree(linkage(squareform(distances, checks=False), "complete"), [2])[:, 0]
    return np.asarray(groups != groups[0], np.bool_)


def follow(members: Ints, took_part: Ints, second: Bools, kept: Memory, updates: Floats) -> Ints:
    """The members of the second group: those found there, and of the others those whose last
    update is nearer to it.
    """
    fallback = bool(second.sum() > len(second) / 2)
    unit = _unit(updates)
    moved = dict(zip(took_part.tolist(), second.tolist(), strict=True))
    for client in members.tolist():
        if client not in moved:
            moved[client] = _nearer(kept.get(str(client)), unit, second, fallback)
    return np.array(sorted(c for c in moved if moved[c]), np.int64)


def _nearer(
    update: Params | Sequence[float] | None, unit: Floats, second: Bools, fallback: bool
) -> bool:
    if update is None or not np.any(update):
        return fallback
    cosines = unit @ np.asarray(update, np.float64)  # its length does not change which is higher
    return bool(cosines[second].mean() > cosines[~second].mean())
