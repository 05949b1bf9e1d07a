"""Makes clients unavailable, slow, silent or corrupt on purpose, around any runtime.

Same seed, same faults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedskew.errors import RecipeError
from fedskew.runtime.hostile import Hostile
from fedskew.runtime.replies import Reply, collect
from fedskew.runtime.wrapped import WrappedRuntime
from fedskew.streams import stream
from fedskew.types import Bools, Description, Population, Replies, Runtime, TrainOrder


@dataclass(frozen=True)
class Faults:
    """What goes wrong, each as a probability per client and round unless said otherwise."""

    available: float = 1.0  # a client can be asked at all
    # JSON file: list of rounds, each the list of clients that are there; repeats when it ends
    trace: str = ""
    dropout: float = 0.0  # receives the model, never answers
    nan: float = 0.0  # answers with NaN in its parameters
    inf: float = 0.0  # answers with infinities
    wrong_shape: float = 0.0  # answers with a vector of another length
    slow_share: float = 0.0  # share of clients that are slow, fixed for the run
    slow_factor: float = 10.0  # how much slower they are
    # simulated compute time, where the population does not give its own
    seconds_per_example: float = 0.001
    # simulated; 0 = none. The loop uses no answer that would come later (fedskew.loop.timing)
    deadline_seconds: float = 0.0
    hostile: Hostile | None = None  # clients that attack or lie: a table of its own

    def __post_init__(self) -> None:
        if isinstance(self.hostile, Mapping):  # as a recipe has it
            object.__setattr__(self, "hostile", Hostile(**self.hostile))
        if self.hostile is not None and not self.hostile.anybody:
            object.__setattr__(self, "hostile", None)
        for name in ("available", "dropout", "nan", "inf", "wrong_shape", "slow_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise RecipeError(
                    f"faults.{name}",
                    f"{getattr(self, name)} is not a probability",
                    "Give a number from 0 to 1",
                )

    @property
    def any(self) -> bool:
        """Whether anything can go wrong by chance; hostile clients are another wrapper."""
        plain = Faults(
            seconds_per_example=self.seconds_per_example,
            slow_factor=self.slow_factor,
            hostile=self.hostile,
        )
        return self != plain


def read_trace(path: str, num_clients: int) -> list[Bools]:
    """Availability masks, one per round, from a JSON list of lists of client ids."""
    try:
        rounds = json.loads(Path(path).read_text())
        masks = [np.isin(np.arange(num_clients), np.asarray(ids, np.int64)) for ids in rounds]
        legal = all(0 <= int(i) < num_clients for ids in rounds for i in ids)
    except (OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise RecipeError(
            "faults.trace",
            f"cannot read {path}: {error}",
            "Give a JSON list of lists of client ids",
        ) from None
    if not masks or not legal:
        raise RecipeError(
            "faults.trace",
            f"{path} is empty or names clients outside 0..{num_clients - 1}",
            "Correct the file",
        )
    return masks


class FaultyRuntime(WrappedRuntime):
    """Another runtime, seen through unreliable clients."""

    def __init__(self, inner: Runtime, faults: Faults, seed: int) -> None:
        super().__init__(inner)
        self._faults, self._seed = faults, seed
        known = inner.describe()
        self._population, self._layout = known.population, known.layout
        self._trace = read_trace(faults.trace, self._population.size) if faults.trace else []
        self._slow = stream(seed, "slow clients").random(self._population.size) < faults.slow_share

    def describe(self) -> Description:
        """As the inner runtime; slow clients are known to be slow."""
        known = self._inner.describe()
        return (
            replace(known, population=self._slowed(known.population)) if self._slow.any() else known
        )

    def _slowed(self, population: Population) -> Population:
        factor = np.where(self._slow, self._faults.slow_factor, 1.0)
        pace, delay = population.seconds_per_example, population.delay_seconds
        pace = np.full(population.size, self._faults.seconds_per_example) if pace is None else pace
        return replace(
            population,
            seconds_per_example=factor * pace,
            delay_seconds=None if delay is None else factor * delay,
        )

    def available(self, round: int) -> Bools:
        """Those the inner runtime has, thinned by the trace and by chance."""
        present = self._inner.available(round)
        if self._trace:
            present = present & self._trace[(round - 1) % len(self._trace)]
        return present & (
            stream(self._seed, "availability", round).random(len(present)) < self._faults.available
        )

    def train(self, order: TrainOrder) -> Replies:
        """Train those who will answer, then damage some answers."""
        fates = [self._fate(int(client), order.round) for client in order.clients]
        useful = [i for i, fate in enumerate(fates) if fate != "dropped out"]
        inner = self._inner.train(order.only(useful))
        position = {i: row for row, i in enumerate(useful)}
        replies = [
            _damaged(inner, position[i], fate)
            if i in position
            else Reply(None, failure=fate, sent=False)
            for i, fate in enumerate(fates)
        ]
        return collect(replies, order.models.shape[1], layout=self._layout)

    def _fate(self, client: int, round: int) -> str:
        f = self._faults
        silent, corrupt = stream(self._seed, "faults", client, round).random(2)
        if silent < f.dropout:
            return "dropped out"
        for kind, chance in (("nan", f.nan), ("inf", f.inf), ("wrong shape", f.wrong_shape)):
            if corrupt < chance:
                return kind
            corrupt -= chance
        return ""


def _damaged(inner: Replies, row: int, fate: str) -> Reply:
    params = inner.params[row]
    if fate in ("nan", "inf"):
        params = params.copy()
        params[:: max(1, len(params) // 7)] = np.nan if fate == "nan" else np.inf
    elif fate == "wrong shape":
        params = params[:-1]
    return Reply(
        params,
        float(inner.loss[row]),
        float(inner.seconds[row]),
        int(inner.steps[row]),
        int(inner.examples[row]),
        inner.failures[row],
        bool(inner.sent[row]),
    )
