"""When the clients of a group pull their model in opposite directions, the group splits in two
(clustered federated learning).

Sattler, Mueller, Samek: "Clustered Federated Learning: Model-Agnostic Distributed Multitask
Optimization Under Privacy Constraints", IEEE TNNLS 2021, Algorithms 1 and 2; METHODS 7.2. In each
round, for each group, on the updates dW_i of its members that took part (trained minus received
model): the norm of the MEAN update below ``eps1`` (the group has converged) and the largest norm
above ``eps2`` (its members have not), more than two members, after round ``min_round``: complete
linkage on the cosines divides the members in two, and the group splits if ``gamma`` < sqrt((1 - a)
/ 2), a = the largest cosine across the division. Both parts go on from the group's model.

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
    Stateful,
    View,
)

BASE_ROUNDS = (2, 5)  # first and last round whose norms set the scale of eps_mode = "relative"


def step(
    memory: Memory,
    ids: Ints,
    view: View,
    rng: np.random.Generator,
    *,
    eps1: float = 0.4,
    eps2: float = 1.6,
    eps_mode: Literal["absolute", "relative"] = "absolute",
    gamma: float = 0.5,
    min_round: int = 20,
    weights: Literal["examples", "uniform"] = "examples",
    cache: Literal["all", "last", "none"] = "all",
) -> tuple[Plan, Memory]:
    """One chain of length one per selected client, on the model of its group; at first there is
    one group.
    """
    home = memory.get("home", np.zeros(view.size, np.int64))
    return Plan(tuple(Chain(int(home[c]), (int(c),)) for c in ids), home=home), memory


def after(
    memory: Memory,
    seen: Aftermath,
    *,
    eps1: float = 0.4,
    eps2: float = 1.6,
    eps_mode: Literal["absolute", "relative"] = "absolute",
    gamma: float = 0.5,
    min_round: int = 20,
    weights: Literal["examples", "uniform"] = "examples",
    cache: Literal["all", "last", "none"] = "all",
) -> tuple[Params, Ints, Memory]:
    """Split every group that has stopped moving while its members have not."""
    models, home, norms = list(seen.models), seen.home.copy(), list(memory.get("norms", []))
    kept = remember_updates(memory.get("cache", {}), seen, cache)
    updates = seen.updates.astype(np.float64)
    for slot in sorted(set(seen.slots.tolist())):
        mine = np.flatnonzero(seen.slots == slot)
        shares = (
            seen.examples[mine].astype(np.float64) if weights == "examples" else np.ones(len(mine))
        )
        mean_norm = float(np.linalg.norm(np.average(updates[mine], axis=0, weights=shares)))
        max_norm = float(np.linalg.norm(updates[mine], axis=1).max())
        if BASE_ROUNDS[0] <= seen.round <= BASE_ROUNDS[1]:
            norms.append(mean_norm)
        scale = (
            (float(np.median(norms)) if norms and seen.round >= BASE_ROUNDS[1] else np.nan)
            if eps_mode == "relative"
            else 1.0
        )
        members = np.flatnonzero(home == slot)
        stalled = mean_norm < eps1 * scale and max_norm > eps2 * scale
        if not (stalled and len(members) > 2 and len(mine) > 1 and seen.round > min_round):
            continue
        cosines = cosine_matrix(updates[mine])
        second = bipartition(cosines)
        across = float(cosines[np.ix_(~second, second)].max())
        if gamma < np.sqrt((1 - min(across, 1.0)) / 2):
            models.append(seen.models[slot])
            moved = follow(members, seen.clients[mine], second, kept, part_of(seen, mine, cache))
            home[moved] = len(models) - 1
    return np.stack(models), home, {"home": home, "norms": norms, "cache": kept}


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
    """(n,) which clients are in the second of two groups by complete linkage; the first client is
    always in the first group.

    >>> bipartition(np.array([[1.0, 0.9, -0.8], [0.9, 1.0, -0.7], [-0.8, -0.7, 1.0]]))
    array([False, False,  True])
    """
    # 0.1 s to import: only for a run that comes this far
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    distances = np.maximum(1 - (cosines + cosines.T) / 2, 0)
    np.fill_diagonal(distances, 0)
    groups = fcluster(linkage(squareform(distances, checks=False), "complete"), 2, "maxclust")
    # every distance is the same: any division is as good, the last client goes
    if groups.max() == 1:
        groups = np.append(np.ones(len(groups) - 1, np.int64), 2)
    return np.asarray(groups != groups[0])


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


cfl = Stateful(step, after=after)
