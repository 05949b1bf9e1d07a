"""Named random streams: the only source of randomness in fedskew.

A stream is found by its name and keys, never by how often something was drawn before, so adding a
draw in one stage cannot shift another, and two methods under one seed share partition, split,
initial model and every client's batch order.
"""

from __future__ import annotations

import hashlib

import numpy as np


def _words(purpose: str) -> tuple[int, int]:
    digest = hashlib.sha256(purpose.encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def _sequence(seed: int, purpose: str, keys: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(int(seed), spawn_key=(*_words(purpose), *(int(k) for k in keys)))


def stream(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """The generator of one purpose, for example ``stream(seed, "batch", client, round)``.

    >>> number = stream(7, "select", 1).integers(1 << 30)
    >>> bool(number == stream(7, "select", 1).integers(1 << 30))
    True
    >>> bool(number == stream(7, "select", 2).integers(1 << 30))
    False
    """
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, keys)))


def seed_for(seed: int, purpose: str, *keys: int) -> int:
    """A 63-bit integer of one purpose, for libraries that want a seed instead of a generator.

    >>> seed_for(0, "init") == seed_for(0, "init"), seed_for(0, "init") == seed_for(1, "init")
    (True, False)
    """
    return int(_sequence(seed, purpose, keys).generate_state(1, np.uint64)[0] >> np.uint64(1))
