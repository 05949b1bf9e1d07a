"""What a selection rule or a procedure may look at, and what it may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fedskew.types.arrays import Bools, Floats, Ints, freeze
from fedskew.types.clients import Clustering, Population, Signal


def loss_limit(num_classes: int) -> float:
    """The largest loss a client may report: a mean cross-entropy above 10 ln C (at least 23) is
    that of a broken or a lying client.

    >>> round(loss_limit(2), 2), round(loss_limit(100), 2)
    (23.03, 46.05)
    """
    return float(10 * np.log(max(num_classes, 10)))


@dataclass(frozen=True)
class AskLoss:
    """A rule's request before it selects: the present model's loss on these clients' data."""

    clients: Ints
    max_examples: int = 0  # 0 = on all of it, else on a fresh random draw of this many

    def __post_init__(self) -> None:
        freeze(self, clients=np.int64)


@dataclass(frozen=True)
class AskUpdates:
    """A rule's request: let these clients train from the present model, keep only what changed
    (of the last layer, or all).
    """

    clients: Ints
    layer: Literal["last", "all"] = "all"

    def __post_init__(self) -> None:
        freeze(self, clients=np.int64)


@dataclass(frozen=True)
class AskTrial:
    """A rule's request: a throw-away round of these clients; the answer is the loss of its
    outcome at every client.
    """

    clients: Ints

    def __post_init__(self) -> None:
        freeze(self, clients=np.int64)


@dataclass(frozen=True)
class AskSlots:
    """A procedure's request: mean losses of these slots' models on these clients' training data."""

    clients: Ints
    slots: Ints

    def __post_init__(self) -> None:
        freeze(self, clients=np.int64, slots=np.int64)


@dataclass(frozen=True)
class AskShares:
    """A procedure's request: which share of its training examples each slot's model fits best."""

    clients: Ints
    slots: Ints

    def __post_init__(self) -> None:
        freeze(self, clients=np.int64, slots=np.int64)


Ask: TypeAlias = AskLoss | AskUpdates | AskTrial | AskSlots | AskShares


@dataclass(frozen=True)
class Answer:
    """What came back for a request; nan where a client failed.

    ``values``: (n,) for AskLoss, (n, F) for AskUpdates, (K,) for AskTrial, (n, number of slots) for
    AskSlots and AskShares.
    """

    ask: Ask
    values: Floats

    def __post_init__(self) -> None:
        freeze(self, values=np.float64)


@dataclass(frozen=True)
class Pace:
    """What one turn of training takes at every client on the simulated clock, in seconds."""

    compute: Floats  # (K,) to train
    send: Floats  # (K,) for a model to or from the server
    hop: Floats  # (K,) for a model to the next device
    shared_uplink: bool = False  # one upload at a time

    def __post_init__(self) -> None:
        freeze(self, compute=np.float64, send=np.float64, hop=np.float64)


@dataclass(frozen=True)
class View:
    """Everything a selection rule may look at. Never test data."""

    round: int  # counts from 1
    budget: int  # how many clients may train this round
    population: Population
    available: Bools  # (K,)
    loss: Floats  # (K,) last reported, nan = never
    times_selected: Ints  # (K,)
    last_selected: Ints  # (K,) round of the last selection, 0 = never
    signal: Signal | None = None
    clustering: Clustering | None = None
    answers: tuple[Answer, ...] = ()  # to what the rule has asked for in this round, oldest first
    pace: Pace | None = None  # for procedures that need "pace"

    def __post_init__(self) -> None:
        freeze(
            self,
            available=np.bool_,
            loss=np.float64,
            times_selected=np.int64,
            last_selected=np.int64,
        )

    @property
    def size(self) -> int:
        """K."""
        return len(self.available)
