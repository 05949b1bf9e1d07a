"""Clients take turns in the order of their ids: the fairest selection that looks at nothing.

A baseline without a paper of its own; equal-share scheduling over the available clients. The turn
is remembered, so a client that was away waits for its next turn and does not catch up.
"""

from __future__ import annotations

import numpy as np

from fedskew.types import Ints, Memory, Stateful, View


def take_turns(memory: Memory, view: View, rng: np.random.Generator) -> tuple[Ints, Memory]:
    """The next ``view.budget`` available clients at or after the remembered turn, wrapping
    around; order = whose turn it is.
    """
    there = np.flatnonzero(view.available)
    begin = np.searchsorted(there, int(memory.get("next", 0)))
    chosen = np.roll(there, -int(begin))[: view.budget]
    following = int(chosen[-1] + 1) % view.size if len(chosen) else int(memory.get("next", 0))
    return chosen, {"next": following}


round_robin = Stateful(take_turns)
"""The rule as recipes name it."""
