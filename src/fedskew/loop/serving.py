"""The served model: what is tested, saved and finished.

It is the last model, or with ``run.served_rounds = n`` a running mean over about the last n rounds.
Clients go on from the last model either way: the mean is the server's own, costs no bytes, and
takes out the swing that skewed clients put into every single round.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedskew.types import Memory, Params, State

KEPT = "served"  # its place in State.memory


def with_served(
    memory: Mapping[str, Memory], models: Params, round: int, rounds: int
) -> dict[str, Memory]:
    """Memory with the served models after this round: a plain mean over the first ``rounds``
    rounds, then each round moves it by 1 / ``rounds``. Where models came or went, it starts anew.

    >>> memory = {}
    >>> for t, value in enumerate([4.0, 8.0, 8.0], start=1):
    ...     memory = with_served(memory, np.full((1, 1), value, np.float32), t, rounds=2)
    >>> memory["served"]["models"].tolist()
    [[7.0]]
    """
    if rounds <= 1:
        return dict(memory)
    before = memory[KEPT]["models"] if KEPT in memory else models
    if before.shape != models.shape:
        before = models
    share = 1.0 / min(round, rounds)
    mean = before.astype(np.float64) + share * (models.astype(np.float64) - before)
    return {**memory, KEPT: {"models": mean.astype(np.float32)}}


def served(state: State) -> Params:
    """(S, D) the models that are tested and saved."""
    kept = state.memory.get(KEPT)
    return state.models if kept is None else np.asarray(kept["models"])


def without_served(memory: Mapping[str, Memory]) -> dict[str, Memory]:
    """Memory once a finishing step has made the served model the only one."""
    return {stage: kept for stage, kept in memory.items() if stage != KEPT}
