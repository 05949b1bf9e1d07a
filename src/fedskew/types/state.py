"""The checkpoint, and what a round teaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedskew.types.arrays import Floats, Ints, Memory, Params, freeze
from fedskew.types.clients import Clustering, Signal
from fedskew.types.plan import Plan


@dataclass(frozen=True)
class State:
    """Everything that passes from one round to the next: this value is the whole checkpoint."""

    models: Params  # (S, D)
    round: int  # rounds finished
    seed: int
    loss: Floats  # (K,)
    times_selected: Ints  # (K,)
    last_selected: Ints  # (K,)
    signal: Signal | None = None
    clustering: Clustering | None = None
    home: Ints | None = None  # (K,)
    memory: Mapping[str, Memory] = field(default_factory=dict)  # stage name -> what it remembers

    def __post_init__(self) -> None:
        freeze(
            self,
            models=np.float32,
            loss=np.float64,
            times_selected=np.int64,
            last_selected=np.int64,
            home=np.int64,
        )


@dataclass(frozen=True)
class Feedback:
    """What a round taught, for rules that learn: one row per client whose reply was used, in the
    order of the plan.
    """

    round: int
    clients: Ints  # (n,)
    loss: Floats  # (n,) as reported
    # (n,) simulated, never measured: a rule that learns from it must repeat exactly
    seconds: Floats
    examples: Ints  # (n,)
    steps: Ints  # (n,)
    # (n, F) trained minus received: the whole model, or its output layer (weight rows, then bias)
    delta: Params
    head_shape: tuple[int, int]  # (C, L) of the output layer; (0, 0) if the model has none
    # (n, C) squared norms on the auxiliary set, if the rule asked for them
    class_gradients: Floats | None = None

    def __post_init__(self) -> None:
        freeze(
            self,
            clients=np.int64,
            loss=np.float64,
            seconds=np.float64,
            examples=np.int64,
            steps=np.int64,
        )
        freeze(self, delta=np.float32, class_gradients=np.float64)


@dataclass(frozen=True)
class Aftermath:
    """A round that has been merged, for procedures that look after their slots: one row per
    client whose reply was used.
    """

    round: int
    plan: Plan
    before: Params  # (S, D) the models the round began with
    models: Params  # (S, D) the models as merged
    home: Ints  # (K,) the slot each client is evaluated with
    clients: Ints  # (n,) in the order of the plan
    slots: Ints  # (n,) whose model each of them trained
    received: Params  # (n, D)
    returned: Params  # (n, D)
    examples: Ints  # (n,)
    loss: Floats  # (n,) as reported
    num_weights: int  # how many numbers at the front of a model are trained
    head: tuple[slice, ...] = ()  # where the output layer lies in a model; empty if it has none

    def __post_init__(self) -> None:
        freeze(
            self,
            before=np.float32,
            models=np.float32,
            received=np.float32,
            returned=np.float32,
            loss=np.float64,
        )
        freeze(self, home=np.int64, clients=np.int64, slots=np.int64, examples=np.int64)

    @property
    def updates(self) -> Params:
        """(n, W) what training changed in the weights of each client's model, buffers left out."""
        return np.asarray(
            self.returned[:, : self.num_weights] - self.received[:, : self.num_weights], np.float32
        )
