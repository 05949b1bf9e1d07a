"""Clients take turns in the order of their ids: the fairest selection that looks at nothing.

A baseline without a paper of its own; equal-share scheduling over the available clients. The turn
is remembered, so a client that was away waits for its next turn and does not catch up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedskew.types import Ints, Memory, SelectionRule, View


@dataclass(frozen=True)
class RoundRobin(SelectionRule):
    """The next ``view.budget`` available clients at or after the remembered turn, wrapping
    around; order = whose turn it is.
    """

    def choose(self, memory: Memory, view: View, rng: np.random.Generator) -> tuple[Ints, Memory]:
        """Whose turn it is."""
        candidates = np.flatnonzero(view.available)
        turn = int(memory.get("next", 0))
        begin = np.searchsorted(candidates, turn)
        chosen = np.roll(candidates, -int(begin))[: view.budget]
        following = int(chosen[-1] + 1) % view.size if len(chosen) else turn
        return chosen, {"next": following}
