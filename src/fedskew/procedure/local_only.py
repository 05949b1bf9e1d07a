"""Every client trains alone and nothing is sent: the reference any federation has to beat.

docs/methods.md 7.5. Each client has a model of its own, which begins as the run's initial model and
trains whenever the selection rule names the client, so a run makes as many sample passes as FedAvg
under the same selection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedskew.errors import RunError
from fedskew.types import Chain, Ints, Memory, Params, Plan, ProcedureRule, View

MAX_BYTES = 4e9  # of client models held at once


def check_room(where: str, count: int, size: int) -> None:
    """Refuse more client models than fit into memory.

    >>> check_room("local_only", 10_000, 1_000_000)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedskew.errors.RunError: local_only: 10,000 models of 1,000,000 numbers are 40.0 GB, above 4 ...
    """
    if 4.0 * count * size > MAX_BYTES:
        what = (
            f"{count:,} models of {size:,} numbers are {4e-9 * count * size:.1f} GB, "
            f"above {MAX_BYTES / 1e9:.0f} GB"
        )
        raise RunError(
            where, what, "Use fewer clients, a smaller model, or a method with one model per group"
        )


@dataclass(frozen=True)
class LocalOnly(ProcedureRule):
    """Slot k is client k's; no model goes down or up."""

    several_models = True

    def begin(self, fresh: Callable[[int], Params], size: int) -> Params:
        """(K, D) the same first model for everyone."""
        first = fresh(0)
        check_room("procedure local_only", size, len(first))
        return np.repeat(first[None], size, axis=0)

    def plan(
        self, memory: Memory, ids: Ints, view: View, rng: np.random.Generator
    ) -> tuple[Plan, Memory]:
        """Everybody on its own model."""
        chains = tuple(Chain(int(client), (int(client),)) for client in ids)
        return Plan(chains, home=np.arange(view.size), models_down=0, models_up=0), memory
