"""What any aggregation rule can be given against hostile clients: ``aggregation.max_share``,
``aggregation.bucket``, ``aggregation.verify`` (docs/methods.md 5.3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedskew.aggregation.shares import usual_share
from fedskew.errors import RecipeError
from fedskew.types import Ends, Floats, Ints


@dataclass(frozen=True)
class Guard:
    """Options of every ``[aggregation]`` table, whatever its rule."""

    # the most one client may weigh in the model it trains; 0: 0.85, or 0.99 among fewer than five
    # clients, more than any honest client of our studies; 1: as much as it says
    max_share: float = 0.0
    # ends are averaged in random groups of this size before the rule sees them (Karimireddy 2022)
    bucket: int = 1
    # a reply is not used if it makes the loss on the server's own examples rise by more than this
    # for the labels its client holds (fedskew.loop.verifying); 0: nobody looks
    verify: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.max_share <= 1:
            what = f"{self.max_share} is not a share"
            raise RecipeError("aggregation.max_share", what, "Give a number from 0 to 1")
        if self.bucket < 1 or self.verify < 0:
            what = f"bucket = {self.bucket}, verify = {self.verify}"
            raise RecipeError("aggregation", what, "Give 1 or more, 0 or more")

    def share_of(self, clients: int) -> float:
        """The most that one of so many clients may weigh."""
        if self.max_share:
            return max(self.max_share, 1 / clients)
        return usual_share(clients)


def bucketed(ends: Ends, size: int, rng: np.random.Generator) -> Ends:
    """The ends averaged in random groups of ``size``, the last perhaps smaller: to a robust rule
    clients with different labels look more alike.

    Karimireddy, He, Jaggi: "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing",
    ICLR 2022, Algorithm 1. Means within a bucket are without weights; it counts for all examples
    in it. One hostile client spoils its whole bucket, so fewer of them can be borne.
    """
    n, floats = len(ends.params), ends.layout.num_floats
    order = rng.permutation(n)
    groups = [np.sort(order[begin : begin + size]) for begin in range(0, n, size)]
    rows = np.stack([ends.params[group].mean(axis=0) for group in groups])
    for row, group in zip(rows, groups, strict=True):
        row[floats:] = ends.params[group, floats:].max(axis=0)
    return replace(
        ends,
        params=rows,
        num_examples=np.array([ends.num_examples[group].sum() for group in groups]),
        steps=np.array([ends.steps[group].sum() for group in groups]),
        clients=np.array([ends.clients[group[0]] for group in groups]),
        turns=tuple(tuple(t for i in group for t in ends.turns[i]) for group in groups),
        mixes=None if ends.mixes is None else np.stack([_mix(ends, group) for group in groups]),
    )


def _mix(ends: Ends, group: Ints) -> Floats:
    """(C,) label shares of all examples of a bucket."""
    assert ends.mixes is not None
    return np.average(ends.mixes[group], axis=0, weights=np.maximum(ends.num_examples[group], 1))
