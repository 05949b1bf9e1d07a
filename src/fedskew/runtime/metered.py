"""Another runtime whose clients work alone, one at a time, with a meter read before and after
each (``run.energy``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedskew.accounting.energy import WATTS, Meter
from fedskew.types import (
    Auxiliary,
    Bools,
    Description,
    Floats,
    Ids,
    Ints,
    LocalJob,
    Params,
    Replies,
    Runtime,
    Scores,
)


class MeteredRuntime:
    """Trains and evaluates clients one by one through ``inner``; what they spent is kept until
    :meth:`take_joules`.
    """

    def __init__(self, inner: Runtime, meter: Meter) -> None:
        self._inner, self._meter, self._joules = inner, meter, 0.0
        self._watts = inner.describe().population.watts

    def take_joules(self) -> float:
        """Joules since the last call."""
        spent, self._joules = self._joules, 0.0
        return spent

    def _stop(self, client: int) -> None:
        self._joules += self._meter.stop(
            WATTS if self._watts is None else float(self._watts[client])
        )

    def describe(self) -> Description:
        """As the inner runtime."""
        return self._inner.describe()

    def initial(self, seed: int) -> Params:
        """As the inner runtime."""
        return self._inner.initial(seed)

    def label_counts(self) -> Ints:
        """As the inner runtime."""
        return self._inner.label_counts()

    def available(self, round: int) -> Bools:
        """As the inner runtime."""
        return self._inner.available(round)

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
        """One client after another, each metered."""
        parts = []
        for i, client in enumerate(clients):
            added = None if corrections is None else corrections[i : i + 1]
            self._meter.start()
            parts.append(
                self._inner.train(
                    [client], models, [start[i]], job, seed=seed, round=round, corrections=added
                )
            )
            self._stop(int(client))
        return (
            _joined(parts)
            if parts
            else self._inner.train([], models, [], job, seed=seed, round=round)
        )

    def evaluate(self, models: Params) -> Scores:
        """As the inner runtime: the server's own work is not metered."""
        return self._inner.evaluate(models)

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
        """Losses that a rule asks for are metered client by client; test sets, which exist for
        us alone, are not.
        """
        options = {"max_examples": max_examples, "seed": seed, "round": round}
        if which == "test" or not len(clients):
            return self._inner.evaluate_clients(clients, models, start, which, **options)
        parts = []
        for client, slot in zip(clients, start, strict=True):
            self._meter.start()
            parts.append(self._inner.evaluate_clients([client], models, [slot], which, **options))
            self._stop(int(client))
        return Scores(
            *(
                np.concatenate([getattr(p, f) for p in parts])
                for f in ("loss", "accuracy", "num_examples")
            )
        )

    def best_fit(self, clients: Ids, models: Params) -> Floats:
        """Metered client by client."""
        parts = []
        for client in clients:
            self._meter.start()
            parts.append(self._inner.best_fit([client], models))
            self._stop(int(client))
        return np.concatenate(parts) if parts else self._inner.best_fit([], models)

    def auxiliary(self, models: Params) -> Auxiliary:
        """As the inner runtime."""
        return self._inner.auxiliary(models)

    def close(self) -> None:
        """As the inner runtime."""
        self._inner.close()


def _joined(parts: Sequence[Replies]) -> Replies:
    """Several replies as one."""
    arrays = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("params", "loss", "seconds", "steps", "examples", "sent")
    }
    return Replies(**arrays, failures=tuple(why for part in parts for why in part.failures))
