"""Federations that do not exist: who is there, who answers, and all a selection rule may see."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedskew.streams import stream
from fedskew.types import Bools, Clustering, Floats, Ints, Params, Population, Signal, frozen

HEAD = (4, 3)  # classes, and inputs of the output layer
BODY = 10  # parameters of all other layers


@dataclass(frozen=True)
class World:
    """A federation that does not exist; equal worlds are equal in every number.

    >>> one, reordered = World(clients=3), World(clients=3, order=(2, 0, 1))
    >>> one.num_examples.tolist() == reordered.num_examples[[1, 2, 0]].tolist()
    True
    """

    clients: int = 12
    budget: int = 4
    rounds: int = 6
    seed: int = 0
    # some: others in every round, now and then nobody; a few without data
    available: Literal["all", "some", "none"] = "all"
    reports: Literal["all", "some", "none"] = "all"  # whose losses and updates are usable
    # each client its own; loose: every third client in none
    clusters: Literal["few", "one", "each", "loose"] = "few"
    # False: of signal, clusters, latencies and SNRs only what the rule says it needs
    everything: bool = True
    # client j is client order[j] of the world without it: the same clients under other names
    order: tuple[int, ...] = ()

    def __repr__(self) -> str:
        changed = [f for f in dataclasses.fields(self) if getattr(self, f.name) != f.default]
        return f"World({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in changed)})"

    @cached_property
    def num_examples(self) -> Ints:
        """(K,) all different, some 0 where not everybody is available."""
        counts = 10 + self._drawn("sizes").permutation(self.clients)
        if self.available == "some":
            counts[self._drawn("empty").random(self.clients) < 0.1] = 0
        return self._named(counts)

    def population(self, needs: frozenset[str]) -> Population:
        """Sizes, and what else is known of the clients."""
        latency = self._latency if self.everything or "latency" in needs else None
        return Population(
            self.num_examples,
            latency_seconds=latency,
            snr=self._snr if self.everything or "snr" in needs else None,
        )

    @cached_property
    def signal(self) -> Signal:
        """Label proportions; zeros for clients without data."""
        rows = self._named(self._drawn("labels").dirichlet(np.full(HEAD[0], 0.3), self.clients))
        has_data = self.num_examples > 0
        return Signal(
            np.where(has_data[:, None], rows, 0.0),
            self.num_examples.astype(np.float64),
            "disclosed",
            known=has_data,
        )

    @cached_property
    def clustering(self) -> Clustering:
        """Groups numbered by their smallest member; -1 for clients in none."""
        drawn = self._drawn("clusters").integers(
            0, max(2, min(20, self.clients // 4)), self.clients
        )
        raw = {"one": np.zeros(self.clients, np.int64), "each": np.arange(self.clients)}.get(
            self.clusters, drawn
        )
        if self.clusters == "loose":
            raw[2::3] = -1
        raw = np.where(self.num_examples > 0, self._named(raw), -1)
        groups, first = np.unique(raw[raw >= 0], return_index=True)
        number = np.full(int(raw.max(initial=-1)) + 2, -1)
        number[groups[np.argsort(first)]] = np.arange(len(groups))
        return Clustering(number[raw])

    @cached_property
    def seconds(self) -> Floats:
        """(K,) what a round of training takes."""
        return self._named(self._drawn("seconds").uniform(1, 9, self.clients))

    def available_at(self, round: int) -> Bools:
        """(K,) who is there."""
        share = {"all": 1.0, "none": 0.0}.get(self.available, 0.0 if round % 5 == 4 else 0.6)
        drawn: Bools = self._named(self._drawn("there", round).random(self.clients)) < share
        return drawn & (self.num_examples > 0)

    def usable_at(self, round: int) -> Bools:
        """(K,) whose losses and updates can be used."""
        share = {"all": 1.0, "some": 0.7, "none": 0.0}[self.reports]
        usable: Bools = self._named(self._drawn("usable", round).random(self.clients)) < share
        return usable

    def losses_at(self, round: int, trial: int = 0) -> Floats:
        """(K,) falling slowly from a level of the client's own; nan where not usable."""
        noise = self._named(self._drawn("losses", round, trial).random(self.clients))
        return np.where(self.usable_at(round), self._level * 0.97**round + 0.1 * noise, np.nan)

    def updates_at(self, round: int, layer: str) -> Params:
        """(K, F) a direction of the client's own, and noise; the output layer comes first."""
        noise = self._named(self._drawn("updates", round).normal(size=self._direction.shape))
        width = HEAD[0] * HEAD[1] + HEAD[0] + (BODY if layer == "all" else 0)
        return (self._direction + 0.3 * noise)[:, :width].astype(np.float32)

    def class_gradients_at(self, round: int) -> Floats:
        """(K, C) squared norms on the server's own examples."""
        return self._named(self._drawn("gradients", round).random((self.clients, HEAD[0])))

    @cached_property
    def _latency(self) -> Floats:
        return self._named(self._drawn("latency").uniform(0.1, 20, self.clients))

    @cached_property
    def _snr(self) -> Floats:
        return self._named(10 ** self._drawn("snr").uniform(0, 3, self.clients))

    @cached_property
    def _level(self) -> Floats:
        return self._named(self._drawn("level").uniform(0.3, 2.3, self.clients))

    @cached_property
    def _direction(self) -> Floats:
        return self._named(
            self._drawn("direction").normal(size=(self.clients, HEAD[0] * HEAD[1] + HEAD[0] + BODY))
        )

    def _drawn(self, purpose: str, *keys: int) -> np.random.Generator:
        return stream(self.seed, f"world {purpose}", *keys)

    def _named(self, values: NDArray[Any]) -> NDArray[Any]:
        return frozen(values[list(self.order)] if self.order else values)


WORLDS = (
    World(),
    World(available="some"),
    World(reports="some", available="some", clusters="loose", seed=1),
    World(reports="none"),
    World(reports="none", available="some", seed=2),
    World(available="none", rounds=2),
    World(clients=1, budget=1),
    World(clients=1, budget=3, reports="some"),
    World(clients=5, budget=5),
    World(clients=5, budget=50, available="some"),
    World(clusters="one"),
    World(clusters="each", available="some"),
    World(clusters="loose"),
    World(everything=False),
    World(everything=False, reports="some", available="some", seed=3),
)
