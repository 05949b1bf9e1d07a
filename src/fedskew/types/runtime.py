"""The one narrow door to the outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from fedskew.types.arrays import Bools, Floats, Ids, Ints, Params, freeze
from fedskew.types.clients import Population
from fedskew.types.layout import Layout
from fedskew.types.plan import LocalJob, Replies, Scores


@dataclass(frozen=True)
class Auxiliary:
    """How models react to a small balanced set of examples of the server's (``data.auxiliary``)."""

    class_gradients: Floats  # (n, C) squared norm of the output layer's gradient, class by class
    class_softmax: Floats  # (n, C, C) mean softmax on examples of each true class

    def __post_init__(self) -> None:
        freeze(self, class_gradients=np.float64, class_softmax=np.float64)


@dataclass(frozen=True)
class Moments:
    """Features before the output layer, added up class by class: one row per client. A client of
    which nothing is known has counts of 0.
    """

    counts: Ints  # (n, C) examples
    sums: Floats  # (n, C, L) of their features
    products: Floats  # (n, C, L, L) of their features with each other

    def __post_init__(self) -> None:
        freeze(self, counts=np.int64, sums=np.float64, products=np.float64)


@dataclass(frozen=True)
class Description:
    """What a runtime tells about itself before the first round."""

    population: Population
    num_classes: int
    layout: Layout


@dataclass(frozen=True)
class TrainOrder:
    """Train ``clients[i]`` from ``models[start[i]]``, all at once, each of them by the same job.

    >>> order = TrainOrder([4, 2], np.zeros((1, 3)), [0, 0], LocalJob(), seed=0, round=1)
    >>> order.only([1]).clients
    array([2])
    """

    clients: Ids
    models: Params  # (S, D)
    start: Ids  # (n,) rows of models
    job: LocalJob
    seed: int
    round: int
    # (n, D without buffers) what clients[i] adds to each of its gradients
    corrections: Params | None = None

    def __post_init__(self) -> None:
        freeze(self, clients=np.int64, models=np.float32, start=np.int64, corrections=np.float32)

    def only(self, rows: Ids) -> TrainOrder:
        """The same order for some of its rows."""
        index = np.asarray(rows, np.int64)
        return replace(
            self,
            clients=np.asarray(self.clients)[index],
            start=np.asarray(self.start)[index],
            corrections=None if self.corrections is None else self.corrections[index],
        )


@dataclass(frozen=True)
class ScoreOrder:
    """Score ``models[start[i]]`` on the own data of ``clients[i]``, or on a seeded random draw
    of at most ``max_examples``.
    """

    clients: Ids
    models: Params  # (S, D)
    start: Ids  # (n,) rows of models
    which: Literal["test", "train"]
    max_examples: int = 0  # 0 = all
    seed: int = 0
    round: int = 0

    def __post_init__(self) -> None:
        freeze(self, clients=np.int64, models=np.float32, start=np.int64)

    def only(self, rows: Ids) -> ScoreOrder:
        """The same order for some of its rows."""
        index = np.asarray(rows, np.int64)
        return replace(
            self, clients=np.asarray(self.clients)[index], start=np.asarray(self.start)[index]
        )


@dataclass(frozen=True)
class ReleasedCounts:
    """Label counts to which each client has added noise before it gave them away."""

    known: Bools  # (K,) whose counts are here
    counts: Floats  # (K, C)

    def __post_init__(self) -> None:
        freeze(self, known=np.bool_, counts=np.float64)


class Runtime(Protocol):
    """The one narrow door to the outside. It knows how to train client i from a model; never
    plans, clusters or rules.
    """

    def describe(self) -> Description:
        """Clients, classes and the shape of the model."""

    def initial(self, seed: int) -> Params:
        """A fresh model (D,)."""

    def label_counts(self) -> Ints:
        """(K, C) exact label counts, as the clients would disclose them."""

    def released_counts(self, clients: Ids) -> ReleasedCounts | None:
        """Counts that these clients have noised themselves; None where clients do not add noise,
        and whoever reads :meth:`label_counts` has to.
        """

    def available(self, round: int) -> Bools:
        """(K,) who can be asked in this round."""

    def train(self, order: TrainOrder) -> Replies:
        """Train the clients of the order: one row for each, in its order."""

    def score(self, order: ScoreOrder) -> Scores:
        """Loss and accuracy of the clients of the order: one row for each, in its order."""

    def evaluate(self, models: Params) -> Scores:
        """Each model on the central test set."""

    def best_fit(self, clients: Ids, models: Params) -> Floats:
        """(n, S) share of each client's training examples with the lowest loss under each model,
        ties to the first model.
        """

    def auxiliary(self, models: Params) -> Auxiliary:
        """Each model on the server's own small balanced set of examples."""

    def moments(self, clients: Ids, model: Params) -> Moments:
        """Features of each client's training examples under a model (D,), added up by class."""

    def concatenated(self, models: Params) -> Runtime:
        """The same clients with another model: the bodies of these (S, D) side by side, none of
        them trained, under one output layer that is. Closed with this one.
        """

    def frozen(self) -> Mapping[str, Params]:
        """What a model has besides its vector: parameters that are never trained, by name."""

    def close(self) -> None:
        """Let go of processes and memory."""
