"""What a round does: who trains in what order on which model, what each client does, and what
comes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fedskew.types.arrays import Bools, Floats, Ints, Params, freeze
from fedskew.types.layout import Layout


@dataclass(frozen=True)
class Chain:
    """Clients that train one after another, starting from the model in ``slot``."""

    slot: int
    clients: tuple[int, ...]


@dataclass(frozen=True)
class Wave:
    """The d-th client of every chain that is long enough: what can train at once."""

    chains: tuple[int, ...]  # index of the chain in the plan
    clients: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """Who trains in this round, in what order, on which model.

    >>> plan = Plan((Chain(0, (4, 2)), Chain(0, (7,))))
    >>> plan.clients
    (4, 2, 7)
    >>> [wave.clients for wave in plan.waves()]
    [(4, 7), (2,)]
    """

    chains: tuple[Chain, ...]
    # how a model gets from one client of a chain to the next
    relay: Literal["server", "d2d"] = "server"
    # a client fails mid-chain: go on without it, or give the chain up
    broken: Literal["skip", "drop"] = "skip"
    # (K,) the slot each client is evaluated with; None = slot 0 for everyone
    home: Ints | None = None
    # models sent to each client of the plan; 0 = it trains one of its own, which never travels
    models_down: int = 1
    models_up: int = 1  # models each client sends back

    def __post_init__(self) -> None:
        freeze(self, home=np.int64)

    @property
    def clients(self) -> tuple[int, ...]:
        """Every client of the plan, chain by chain."""
        return tuple(client for chain in self.chains for client in chain.clients)

    def waves(self) -> Iterator[Wave]:
        """The plan cut into steps that can run at once."""
        depth = max((len(chain.clients) for chain in self.chains), default=0)
        for d in range(depth):
            index = tuple(i for i, chain in enumerate(self.chains) if len(chain.clients) > d)
            yield Wave(index, tuple(self.chains[i].clients[d] for i in index))


WHOLE_BATCH = 1 << 30  # a batch size that means: all a client has


@dataclass(frozen=True)
class LocalJob:
    """What a client does with the model it receives. It travels as data, so no client has to
    remember a convention.
    """

    epochs: int = 1
    batch: int = 32
    lr: float = 0.05
    # adamw: weights decay by themselves, not through the gradient
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: float = 0.0  # sgd only; state starts fresh every round
    weight_decay: float = 0.0
    prox_mu: float = 0.0  # FedProx: adds mu * (w - received) to every gradient
    # 0 = off; else a longer gradient is shortened to this length before anything is added to it
    clip_norm: float = 0.0
    max_examples: int = 0  # 0 = all; else a fresh random draw of this many each round
    # mean over the batches | received model | trained model
    report_loss: Literal["train", "start", "end"] = "train"
    # What loss the client minimises, by its own label counts: a name of fedskew.objective or
    # "module:function", and its options. A recipe has a table of its own for it.
    objective: str = field(default="cross_entropy", metadata={"table": "objective"})
    objective_options: tuple[tuple[str, Any], ...] = field(
        default=(), metadata={"table": "objective"}
    )
    # The federation's label shares, told to clients whose objective needs them; else ().
    label_shares: tuple[float, ...] = field(default=(), metadata={"table": "objective"})

    def __post_init__(self) -> None:
        # as they come from JSON, pairs and shares are lists
        pairs = tuple((str(key), value) for key, value in self.objective_options)
        object.__setattr__(self, "objective_options", pairs)
        object.__setattr__(self, "label_shares", tuple(self.label_shares))


@dataclass(frozen=True)
class Replies:
    """What came back from one call to :meth:`Runtime.train`, one row per client asked."""

    params: Params  # (n, D); rows that are not ok are undefined
    loss: Floats  # (n,)
    seconds: Floats  # (n,)
    steps: Ints  # (n,) optimiser steps taken
    examples: Ints  # (n,) examples trained on, per epoch
    failures: tuple[str, ...]  # "" = ok, else why not
    sent: Bools  # (n,) whether bytes came back, usable or not: they are charged

    def __post_init__(self) -> None:
        freeze(
            self,
            params=np.float32,
            loss=np.float64,
            seconds=np.float64,
            steps=np.int64,
            examples=np.int64,
            sent=np.bool_,
        )

    @property
    def ok(self) -> Bools:
        """(n,) which rows may be used."""
        return np.array([not why for why in self.failures], np.bool_)


@dataclass(frozen=True)
class Ends:
    """What an aggregation rule averages: the last usable model of every chain on one slot."""

    params: Params  # (n, D)
    num_examples: Ints  # (n,) trained on along the chain
    steps: Ints  # (n,) optimiser steps along the chain
    layout: Layout
    clients: Ints  # (n,) the last of each chain
    num_clients: int  # all that live in the slot: K where there is one model
    job: LocalJob = field(default_factory=LocalJob)  # what the clients did
    # n tuples: steps of every turn along a chain, each with an optimiser of its own; () = one turn
    turns: tuple[tuple[int, ...], ...] = ()
    # (n, C) label shares of the examples along each chain, as the signal has them; None: no signal
    mixes: Floats | None = None
    # (n, C) how far each end raised the output of each class, for rules with ``reads_head``
    rises: Floats | None = None

    def __post_init__(self) -> None:
        if not self.turns:
            one_each = tuple((int(steps),) for steps in self.steps)
            object.__setattr__(self, "turns", one_each)
        freeze(self, params=np.float32, num_examples=np.int64, steps=np.int64, clients=np.int64)
        freeze(self, mixes=np.float64, rises=np.float64)


@dataclass(frozen=True)
class Scores:
    """Loss and accuracy of several evaluations: one row per model, or one row per client."""

    loss: Floats  # (n,) mean; nan where there was nothing to evaluate
    accuracy: Floats  # (n,) nan likewise
    num_examples: Ints  # (n,)

    def __post_init__(self) -> None:
        freeze(self, loss=np.float64, accuracy=np.float64, num_examples=np.int64)
