"""A runtime around another one that passes everything on; a wrapper overrides what it changes."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

from fedskew.types import (
    Auxiliary,
    Bools,
    Description,
    Floats,
    Ids,
    Ints,
    Moments,
    Params,
    ReleasedCounts,
    Replies,
    Runtime,
    ScoreOrder,
    Scores,
    TrainOrder,
)


class WrappedRuntime:
    """Every call of :class:`fedskew.types.Runtime` goes to ``inner``."""

    def __init__(self, inner: Runtime) -> None:
        self._inner = inner

    def describe(self) -> Description:
        """As the inner runtime."""
        return self._inner.describe()

    def initial(self, seed: int) -> Params:
        """As the inner runtime."""
        return self._inner.initial(seed)

    def label_counts(self) -> Ints:
        """As the inner runtime."""
        return self._inner.label_counts()

    def released_counts(self, clients: Ids) -> ReleasedCounts | None:
        """As the inner runtime."""
        return self._inner.released_counts(clients)

    def available(self, round: int) -> Bools:
        """As the inner runtime."""
        return self._inner.available(round)

    def train(self, order: TrainOrder) -> Replies:
        """As the inner runtime."""
        return self._inner.train(order)

    def score(self, order: ScoreOrder) -> Scores:
        """As the inner runtime."""
        return self._inner.score(order)

    def evaluate(self, models: Params) -> Scores:
        """As the inner runtime."""
        return self._inner.evaluate(models)

    def best_fit(self, clients: Ids, models: Params) -> Floats:
        """As the inner runtime."""
        return self._inner.best_fit(clients, models)

    def auxiliary(self, models: Params) -> Auxiliary:
        """As the inner runtime."""
        return self._inner.auxiliary(models)

    def moments(self, clients: Ids, model: Params) -> Moments:
        """As the inner runtime."""
        return self._inner.moments(clients, model)

    def concatenated(self, models: Params) -> Runtime:
        """The same wrapper around the inner runtime's."""
        second = copy(self)
        second._inner = self._inner.concatenated(models)
        return second

    def frozen(self) -> Mapping[str, Params]:
        """As the inner runtime."""
        return self._inner.frozen()

    def close(self) -> None:
        """As the inner runtime."""
        self._inner.close()
