"""The chosen clients cut into groups that train at once: at random, with all labels in every group,
or one of every cluster.

docs/methods.md 6.7. Group sizes differ by at most one. A group's labels are those of all its
examples together, because a chain takes its steps, and its end is averaged, by examples:

    q(G) = sum_G n_k p_k / sum_G n_k,     g = labels of everybody
    worth of a cut = sum over groups of |q(G) - g|^2

- ``greedy`` (as Astraea fills its mediators): a random client, then again and again the client that
  brings KL(q(G), g) lowest, until the group is full. The last group gets what is left.
- ``swap``: a random cut, then two clients of different groups change places as long as that gains
  something worthwhile.

On 200 cuts of 10 Dirichlet(0.1) clients of unlike sizes into 2 groups the worth was, in the median
and at the 90th percentile, 1.0 and 1.2 times the best possible by swaps, 1.4 and 2.7 by greedy, 3.1
and 6.8 for random cuts. Both begin at random, so that the same clients make other groups from round
to round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import scipy

from fedskew.errors import RunError
from fedskew.labels.balance import target_of
from fedskew.labels.omega import omega, reaches
from fedskew.types import Chain, Floats, Ints, Plan, View

Kind: TypeAlias = Literal["random", "balanced", "clusters"]
Builder: TypeAlias = Literal["greedy", "swap"]
Relay: TypeAlias = Literal["server", "d2d"]
Broken: TypeAlias = Literal["skip", "drop"]
SCAN_UP_TO = 32  # clients; beyond that the number of chains is found by bisection
# of a random cut's worth. With 0, 20 clients on noisy counts fell into one and the same cut 200
# times of 200; with 0.01 into 190 different ones, worth 0.017 instead of 0.012 (random cuts: 0.27).
WORTHWHILE = 0.01
MAX_PASSES = 30  # of swaps; 100 clients need about 5


@dataclass(frozen=True)
class Labels:
    """The labels of some clients, and what a group of them should look like."""

    rows: Floats  # (n, C)
    weights: Floats  # (n,) examples, positive
    target: Floats  # (C,)

    def of_groups(self, group_of: Ints) -> Floats:
        """(M, C) label proportions of each group's examples."""
        members = np.eye(int(group_of.max()) + 1)[group_of] * self.weights[:, None]
        proportions: Floats = (members.T @ self.rows) / members.sum(axis=0)[:, None]
        return proportions

    def worth(self, group_of: Ints) -> float:
        """Sum over groups of |q - g|^2: 0 if all look like the target."""
        return float(np.square(self.of_groups(group_of) - self.target).sum())


def labels_of(view: View, clients: Ints) -> Labels:
    """What is known of the labels of these clients; the average where nothing is known."""
    if view.signal is None:
        raise RunError("procedure", "needs label proportions", "Add [signal] to the recipe")
    target = target_of(view.signal, "global")
    rows = np.where(view.signal.known[clients, None], view.signal.rows[clients], target)
    return Labels(rows, np.maximum(view.signal.num_examples[clients], 1.0), target)


# ---------------------------------------------------------------- cutting


def cut(
    clients: Ints,
    view: View,
    count: int,
    rng: np.random.Generator,
    *,
    groups: Kind,
    builder: Builder,
) -> Ints:
    """(n,) the group, 0 to ``count`` - 1, of each client; ``clients`` come in random order."""
    size = len(clients)
    if groups == "random" or count in (1, size):
        return deal(size, count)
    if groups == "clusters":
        return deal_clusters(clients, view, count)
    build = fill_greedily if builder == "greedy" else improve_by_swaps
    return build(labels_of(view, clients), count, rng)


def deal(size: int, count: int) -> Ints:
    """Like cards.

    >>> deal(5, 2).tolist()
    [0, 1, 0, 1, 0]
    """
    return np.arange(size) % count


def deal_clusters(clients: Ints, view: View, count: int) -> Ints:
    """Cluster by cluster, like cards: one of every cluster in each group, as far as they go;
    those in no cluster last.
    """
    if view.clustering is None:
        raise RunError(
            "procedure", "there is no clustering", "Add [signal], [distance] and [clustering]"
        )
    labels = view.clustering.labels[clients]
    by_cluster = np.argsort(np.where(labels < 0, view.clustering.k, labels), kind="stable")
    group_of = np.empty(len(clients), np.int64)
    group_of[by_cluster] = deal(len(clients), count)
    return group_of


def fill_greedily(labels: Labels, count: int, rng: np.random.Generator) -> Ints:
    """Group after group: a random client, then who brings its labels nearest to the target (KL)."""
    free, group_of = list(rng.permutation(len(labels.rows))), np.empty(len(labels.rows), np.int64)
    for group, size in enumerate(np.bincount(deal(len(free), count))):
        chosen = [free.pop(0)]
        while len(chosen) < size:
            sums = (
                labels.weights[chosen] @ labels.rows[chosen]
                + labels.weights[free, None] * labels.rows[free]
            )
            mass = labels.weights[chosen].sum() + labels.weights[free]
            chosen.append(
                free.pop(
                    int(
                        scipy.special.rel_entr(sums / mass[:, None], labels.target)
                        .sum(axis=1)
                        .argmin()
                    )
                )
            )
        group_of[chosen] = group
    return group_of


def improve_by_swaps(labels: Labels, count: int, rng: np.random.Generator) -> Ints:
    """A random cut, improved: client after client takes its best exchange.

    In the end no exchange of two clients betters it by much.
    """
    size = len(labels.rows)
    group_of = rng.permutation(deal(size, count))
    offsets = labels.weights[:, None] * (labels.rows - labels.target)
    enough = max(1e-12, WORTHWHILE * labels.worth(group_of))
    for _ in range(MAX_PASSES):
        changed = False
        for client in range(size):
            gain = _gains(offsets, labels.weights, group_of, client)
            other = int(gain.argmax())
            if gain[other] > enough:
                group_of[[client, other]] = group_of[[other, client]]
                changed = True
        if not changed:
            break
    return group_of


def _gains(offsets: Floats, weights: Floats, group_of: Ints, client: int) -> Floats:
    """(n,) by how much the worth falls if ``client`` and each other swap; 0 within its group."""
    members = np.eye(int(group_of.max()) + 1)[group_of]
    sums, mass = members.T @ offsets, members.T @ weights
    worth = np.square(sums).sum(axis=1) / np.square(mass)
    home, lighter = group_of[client], weights - weights[client]
    moved = offsets - offsets[client]
    here = np.square(sums[home] + moved).sum(axis=1) / np.square(mass[home] + lighter)
    elsewhere = np.square(sums[group_of] - moved).sum(axis=1) / np.square(mass[group_of] - lighter)
    return np.where(group_of == home, 0.0, worth[home] + worth[group_of] - here - elsewhere)


# ---------------------------------------------------------------- how many


def choose_count(
    size: int, predict: Callable[[int], float], level: Callable[[int], float]
) -> tuple[int, float]:
    """The most chains M whose predicted omega stays below ``level(M)``, and that omega.

    One chain always fits: it is its own average. Above :data:`SCAN_UP_TO` clients M is found by
    bisection: omega falls as chains grow longer, but for the luck of the cut.

    >>> choose_count(10, lambda count: count / 2, lambda count: 3.1)
    (6, 3.0)
    """
    seen = {1: 0.0}

    def fits(count: int) -> bool:
        seen[count] = seen[count] if count in seen else predict(count)
        return count == 1 or not reaches(seen[count], level(count))

    if size <= SCAN_UP_TO or fits(size):
        low = next(count for count in range(size, 0, -1) if fits(count))
    else:
        low, high = 1, size  # low fits, high does not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
    return low, seen[low]


def predicted_omega(clients: Ints, view: View, group_of: Ints, epsilon: float) -> float:
    """omega with groups as devices (docs/methods.md 6.7)."""
    return omega(labels_of(view, clients).of_groups(group_of), eps=epsilon)


# ---------------------------------------------------------------- plans


def link(ids: Ints, order: Ints, group_of: Ints, *, relay: Relay, broken: Broken) -> Plan:
    """One chain per group, its clients in the order of ``order``; chains come in the order of
    ``ids``, as parallel ones do.

    A plan without any hand-over is the parallel one: nobody has to be told who comes next.

    >>> order = np.array([3, 1, 0, 2])
    >>> plan = link(np.arange(4), order, deal(4, 2), relay="d2d", broken="skip")
    >>> [chain.clients for chain in plan.chains]
    [(3, 0), (1, 2)]
    """
    place = {int(client): i for i, client in enumerate(ids)}
    members = [
        tuple(int(c) for c in order[group_of == group]) for group in range(int(group_of.max()) + 1)
    ]
    members.sort(key=lambda clients: min(place[c] for c in clients))
    passed_on = any(len(clients) > 1 for clients in members)
    return Plan(
        tuple(Chain(0, clients) for clients in members),
        relay=relay if passed_on else "server",
        broken=broken,
    )
