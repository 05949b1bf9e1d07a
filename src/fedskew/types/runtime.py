"""The one narrow door to the outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from fedskew.types.arrays import Bools, Floats, Ids, Ints, Params, freeze
from fedskew.types.clients import Population
from fedskew.types.layout import Layout
from fedskew.types.plan import LocalJob, Replies, Scores


@dataclass(frozen=True)
class Auxiliary:
    """How models react to a small balanced set of examples that the server itself holds
    (``data.auxiliary``).
    """

    class_gradients: Floats  # (n, C) squared norm of the output layer's gradient, class by class
    class_softmax: Floats  # (n, C, C) mean softmax on examples of each true class

    def __post_init__(self) -> None:
        freeze(self, class_gradients=np.float64, class_softmax=np.float64)


@dataclass(frozen=True)
class Description:
    """What a runtime tells about itself before the first round."""

    population: Population
    num_classes: int
    layout: Layout


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

    def available(self, round: int) -> Bools:
        """(K,) who can be asked in this round."""

    def train(
        self,
        clients: Ids,
        models: Params,
        start: Ids,
        job: LocalJob,
        *,
        seed: int,
        round: int,
        corrections: Params | None = None,
    ) -> Replies:
        """Train client ``clients[i]`` from ``models[start[i]]``, all at once; ``corrections[i]``
        is added to each gradient.
        """

    def evaluate(self, models: Params) -> Scores:
        """Each model on the central test set."""

    def evaluate_clients(
        self,
        clients: Ids,
        models: Params,
        start: Ids,
        which: Literal["test", "train"],
        *,
        max_examples: int = 0,
        seed: int = 0,
        round: int = 0,
    ) -> Scores:
        """``models[start[i]]`` on the own data of ``clients[i]``, or on a seeded random draw of
        at most ``max_examples``.
        """

    def best_fit(self, clients: Ids, models: Params) -> Floats:
        """(n, S) share of each client's training examples with the lowest loss under each model,
        ties to the first model.
        """

    def auxiliary(self, models: Params) -> Auxiliary:
        """Each model on the server's own small balanced set of examples."""

    def close(self) -> None:
        """Let go of processes and memory."""
