"""A runtime that trains nothing: replies follow a formula.

For tests, and for trying a rule out in milliseconds.

>>> from fedskew.types import LocalJob, TrainOrder
>>> runtime = ScriptedRuntime(np.full((3, 2), 5))
>>> model = runtime.initial(0)[None]
>>> replies = runtime.train(TrainOrder([0, 2], model, [0, 0], LocalJob(), seed=0, round=1))
>>> replies.ok.tolist(), replies.examples.tolist()
([True, True], [10, 10])
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedskew.runtime.replies import Reply, collect
from fedskew.streams import stream
from fedskew.types import (
    Auxiliary,
    Bools,
    Description,
    Floats,
    Ids,
    Ints,
    Layout,
    Moments,
    Params,
    Population,
    ReleasedCounts,
    Replies,
    ScoreOrder,
    Scores,
    TrainOrder,
)

Script = Callable[[int, int, Params], Reply]  # client, round, received model -> reply


class ScriptedRuntime:
    """Clients with label counts (K, C); training moves the model a little, each in its way."""

    def __init__(
        self,
        counts: Ints,
        *,
        size: int = 6,
        layout: Layout | None = None,
        script: Script | None = None,
        population: Population | None = None,
    ) -> None:
        self._counts = np.asarray(counts, np.int64)
        self._layout = layout or Layout.of(
            [("weight", (size - 2,), "weight"), ("bias", (2,), "weight")]
        )
        self._population = population or Population(self._counts.sum(axis=1))
        self._script = script

    def describe(self) -> Description:
        """The clients given to the constructor."""
        return Description(self._population, self._counts.shape[1], self._layout)

    def initial(self, seed: int) -> Params:
        """Small random numbers."""
        return stream(seed, "init").normal(size=self._layout.size).astype(np.float32)

    def label_counts(self) -> Ints:
        """The counts given to the constructor."""
        return self._counts

    def released_counts(self, clients: Ids) -> ReleasedCounts | None:
        """Nobody adds noise."""
        return None

    def available(self, round: int) -> Bools:
        """Everyone with examples."""
        return self._population.num_examples > 0

    def train(self, order: TrainOrder) -> Replies:
        """Replies by the script, or a seeded random walk."""
        rows = [
            self._reply(int(client), order.models[slot], order.seed, order.round)
            for client, slot in zip(order.clients, order.start, strict=True)
        ]
        return collect(rows, self._layout.size, layout=self._layout)

    def _reply(self, client: int, model: Params, seed: int, round: int) -> Reply:
        if self._script is not None:
            return self._script(client, round, model)
        rng = stream(seed, "batch", client, round)
        moved = model + rng.normal(scale=0.1, size=len(model)).astype(np.float32)
        return Reply(
            moved, float(rng.uniform(0.1, 2)), 0.01, 1, int(self._population.num_examples[client])
        )

    def evaluate(self, models: Params) -> Scores:
        """A smooth function of the parameters."""
        norm = np.square(models.astype(np.float64)).mean(axis=1)
        return Scores(norm, 1 / (1 + norm), np.full(len(models), 100))

    def score(self, order: ScoreOrder) -> Scores:
        """As :meth:`evaluate`, for each client's model."""
        scores = self.evaluate(order.models)
        index = np.asarray(order.start)
        sizes = self._population.num_examples[np.asarray(order.clients)]
        return Scores(scores.loss[index], scores.accuracy[index], sizes)

    def best_fit(self, clients: Ids, models: Params) -> Floats:
        """All examples of a client under one model: the one :meth:`score` gives the lowest loss."""
        n, slots = len(clients), len(models)
        who, which = np.repeat(np.asarray(clients, np.int64), slots), np.tile(np.arange(slots), n)
        scores = self.score(ScoreOrder(who, models, which, "train"))
        return np.asarray(np.eye(slots)[scores.loss.reshape(n, slots).argmin(axis=1)])

    def auxiliary(self, models: Params) -> Auxiliary:
        """A smooth function of the parameters, the same for every class pair."""
        classes = self._counts.shape[1]
        norm = np.square(models.astype(np.float64)).mean(axis=1)
        gradients = norm[:, None] * (1 + np.arange(classes))
        return Auxiliary(gradients, np.full((len(models), classes, classes), 1 / classes))

    def moments(self, clients: Ids, model: Params) -> Moments:
        """Features of length 1 that are all 1."""
        counts = self._counts[np.asarray(clients, np.int64)]
        sums = counts[:, :, None].astype(np.float64)
        return Moments(counts, sums, sums[:, :, :, None])

    def concatenated(self, models: Params) -> ScriptedRuntime:
        """Other random numbers, as many as there were."""
        return self

    def frozen(self) -> dict[str, Params]:
        """Nothing."""
        return {}

    def close(self) -> None:
        """Nothing to let go of."""
