"""How far each client is trusted.

Everybody begins at 1. A report that is refuted halves it, down to :data:`LOWEST`; one that holds
wins back a tenth of what is missing, up to a ceiling, which a refuted label mix halves for good:
that claim goes on being false.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedskew.types import Bools, Floats, Ids, Memory, State
from fedskew.types.arrays import freeze

LOWEST = 0.05  # so that nobody is shut out for ever by mistake
WON_BACK = 0.1


@dataclass(frozen=True)
class Book:
    """What is remembered of every client."""

    trust: Floats  # (K,)
    ceiling: Floats  # (K,)
    # (K,) loss per pull of the output bias when it last trained; nan = never
    ratio: Floats
    # (K,) its loss, relative to everybody's median, as its update showed it, if what it last said
    # was refuted; else nan
    level: Floats
    places: int = 0  # how many clients were asked to train in one round, at most

    def __post_init__(self) -> None:
        freeze(self, **dict.fromkeys(("trust", "ceiling", "ratio", "level"), np.float64))

    def refute(self, clients: Ids) -> Book:
        """Halve the trust in these clients."""
        trust = self.trust.copy()
        trust[np.asarray(clients, np.int64)] *= 0.5
        return replace(self, trust=np.maximum(trust, LOWEST))

    def confirm(self, clients: Ids) -> Book:
        """These clients' reports held."""
        trust, index = self.trust.copy(), np.asarray(clients, np.int64)
        trust[index] += WON_BACK * (self.ceiling[index] - trust[index])
        return replace(self, trust=trust)

    def stain(self, clients: Ids) -> Book:
        """These clients' label mixes were refuted: trust and ceiling are halved."""
        ceiling, index = self.ceiling.copy(), np.asarray(clients, np.int64)
        ceiling[index] *= 0.5
        return replace(self.refute(clients), ceiling=ceiling)

    def invited(self, rng: np.random.Generator) -> Bools:
        """(K,) who may be chosen in a round: everybody with a chance of its trust."""
        return rng.random(len(self.trust)) < self.trust

    def memory(self) -> Memory:
        """The book as it is kept in the state."""
        names = ("trust", "ceiling", "ratio", "level", "places")
        return {name: getattr(self, name) for name in names}


def open_book(state: State) -> Book:
    """The book in a state; a fresh one if there is none yet."""
    kept, size = state.memory.get("trust"), len(state.loss)
    if kept:
        return Book(**kept)
    nobody = np.full(size, np.nan)
    return Book(np.ones(size), np.ones(size), nobody, nobody)


def with_book(state: State, book: Book) -> State:
    """The state with this book in it."""
    return replace(state, memory={**state.memory, "trust": book.memory()})
