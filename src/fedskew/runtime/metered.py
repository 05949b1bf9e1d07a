"""Another runtime whose clients work one at a time, metered before and after (``run.energy``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from fedskew.accounting.energy import WATTS, Meter
from fedskew.runtime.wrapped import WrappedRuntime
from fedskew.types import Floats, Ids, Params, Replies, Runtime, ScoreOrder, Scores, TrainOrder

Answer = TypeVar("Answer")


class MeteredRuntime(WrappedRuntime):
    """Trains and scores clients one by one through ``inner``; what they spent is kept until
    :meth:`take_joules`. The server's own work is not metered.
    """

    def __init__(self, inner: Runtime, meter: Meter) -> None:
        super().__init__(inner)
        self._meter, self._joules = meter, 0.0
        self._watts = inner.describe().population.watts

    def take_joules(self) -> float:
        """Joules since the last call."""
        spent, self._joules = self._joules, 0.0
        return spent

    def train(self, order: TrainOrder) -> Replies:
        """One client after another, each metered."""
        if not len(order.clients):
            return self._inner.train(order)
        return _joined_replies(
            self._each(order.clients, lambda row: self._inner.train(order.only([row])))
        )

    def score(self, order: ScoreOrder) -> Scores:
        """Losses that a rule asks for are metered client by client; test sets, which exist for
        us alone, are not.
        """
        if order.which == "test" or not len(order.clients):
            return self._inner.score(order)
        return _joined_scores(
            self._each(order.clients, lambda row: self._inner.score(order.only([row])))
        )

    def best_fit(self, clients: Ids, models: Params) -> Floats:
        """Metered client by client."""
        if not len(clients):
            return self._inner.best_fit(clients, models)
        return np.concatenate(
            self._each(clients, lambda row: self._inner.best_fit([int(clients[row])], models))
        )

    def _each(self, clients: Ids, ask: Callable[[int], Answer]) -> list[Answer]:
        """The answer of each row, with the meter on that row's client."""
        answers = []
        for row, client in enumerate(clients):
            self._meter.start()
            answers.append(ask(row))
            watts = WATTS if self._watts is None else float(self._watts[client])
            self._joules += self._meter.stop(watts)
        return answers


def _joined_replies(parts: Sequence[Replies]) -> Replies:
    names = ("params", "loss", "seconds", "steps", "examples", "sent")
    failures = tuple(why for part in parts for why in part.failures)
    return Replies(**_joined(parts, names), failures=failures)


def _joined_scores(parts: Sequence[Scores]) -> Scores:
    return Scores(**_joined(parts, ("loss", "accuracy", "num_examples")))


def _joined(parts: Sequence[object], names: Sequence[str]) -> dict[str, Any]:
    """These array fields of several values, each as one array."""
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
