"""Choose clients whose sets of labels complement each other, from groups of clients that hold
nearly the same labels.

Li, Wu: "FedCLS: a federated learning client selection algorithm based on cluster label
information", VTC 2022-Fall. Neither the paper nor its code could be obtained; this is a
reconstruction from how papers 000 and 004 describe it (docs/methods.md 4.4): presence vectors z_i
in {0, 1}^C, their Hamming distance, groups around leaders within tau C, and per round groups far
from those already taken. tau = 0.1 was best in paper 004. Only label sets are used: no losses, so
none are charged.

Differs from the public code of PSI-PFL:

- That code compares presence vectors divided by their number of labels, so that vectors with
  different numbers of labels differ in every class, and ranks clients by random numbers in the
  place of losses: random selection. Here booleans are compared.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedskew.errors import RecipeError, RunError
from fedskew.selection.groups import Groups, group
from fedskew.types import Bools, Ints, Signal, View, needs

Presence: TypeAlias = NDArray[np.float32]
BLOCK = 64  # candidates for leadership that are compared with everybody at once


@needs("signal")
def fedcls(
    view: View, rng: np.random.Generator, *, tau: float = 0.1, min_count: float = 1.0
) -> Ints:
    """One client of each group with like classes, next the group farthest from those taken.

    A class counts as held from ``min_count`` examples on. The clients are in the order of choice:
    the first group is drawn uniformly, the next is the one whose leader is farthest in the mean
    from the leaders taken, ties at random; each gives one uniformly random available client. When
    every group has given one, a new pass begins.
    """
    if not 0 <= tau <= 1:
        raise RecipeError(
            "selection.tau", f"{tau} is not a share of the classes", "Give a number from 0 to 1"
        )
    if view.signal is None:
        raise RunError("selection fedcls", "there is no signal", "Add [signal] to the recipe")
    held = presence(view.signal, min_count)
    labels, leaders = follow_leaders(held, view.signal.known, tau * view.signal.num_classes)
    candidates = rng.permutation(np.flatnonzero(view.available))
    chosen = complement(group(candidates, labels), held[leaders], view.budget, rng)
    # last: clients without known labels
    return np.concatenate([chosen, candidates[labels[candidates] < 0][: view.budget - len(chosen)]])


def presence(signal: Signal, min_count: float) -> Presence:
    """(K, C) 1 where a client holds at least ``min_count`` examples of a class, else 0."""
    counts = signal.rows * signal.num_examples[:, None]
    return (counts >= min_count - 1e-6).astype(np.float32)  # 3 / 7 * 7 may round below 3


def hamming(some: Presence, others: Presence) -> Ints:
    """(n, N) in how many classes each of ``some`` differs from each of the others."""
    shared = some @ others.T  # whole numbers: exact in any order of addition
    return np.asarray(some.sum(axis=1)[:, None] + others.sum(axis=1) - 2 * shared, np.int64)


def follow_leaders(held: Presence, known: Bools, radius: float) -> tuple[Ints, Ints]:
    """Group numbers (K,) and the leaders: by ascending id, each client joins the first leader
    within ``radius`` or leads.

    The first client without a group leads and takes every later one within reach: the same groups,
    without a look at pairs that do not matter.

    >>> held = np.array([[1, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 1]], np.float32)
    >>> follow_leaders(held, np.ones(4, bool), 1)
    (array([0, 1, 0, 1]), array([0, 1]))
    """
    labels, leaders = np.full(len(held), -1, np.int64), list[int]()
    waiting = np.flatnonzero(known)
    while len(waiting):
        near = hamming(held[waiting[:BLOCK]], held[waiting]) <= radius + 1e-9
        free = np.ones(len(waiting), np.bool_)
        for row in range(len(near)):
            if free[row]:
                within = near[row] & free
                labels[waiting[within]] = len(leaders)
                leaders.append(int(waiting[row]))
                free &= ~within
        waiting = waiting[free]
    return labels, np.array(leaders, np.int64)


def complement(grouped: Groups, leaders: Presence, budget: int, rng: np.random.Generator) -> Ints:
    """One client per group, groups far from those taken first, pass after pass."""
    taken, open_ = np.zeros_like(grouped.sizes), np.zeros(len(grouped.sizes), np.bool_)
    chosen: list[int] = []
    while len(chosen) < min(budget, len(grouped.clients)):
        if not open_.any():
            open_, apart = taken < grouped.sizes, np.zeros(len(open_), np.int64)
        best = np.flatnonzero(open_ & (apart == apart[open_].max()))
        pick = best[rng.integers(len(best))]
        chosen.append(int(grouped.clients[grouped.starts[pick] + taken[pick]]))
        taken[pick] += 1
        open_[pick] = False
        apart += hamming(leaders[pick, None], leaders)[0]
    return np.array(chosen, np.int64)
