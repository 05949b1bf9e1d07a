"""A recipe made ready to play: one function per slot of the pipeline, and the world it plays in."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fedskew.accounting.links import Tariff
from fedskew.types import Description, LocalJob, Memory, Params, Runtime, Stateful, needs_of

# loss sources that ask for losses before selecting, instead of keeping reported ones
ASKED_FOR = ("exact", "batch")


@dataclass(frozen=True)
class Stage:
    """A function in one slot of the pipeline, with the options the recipe gave it."""

    name: str
    function: Any  # a plain function, or Stateful
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def wants(self) -> str:
        """The name of the first thing the loop supplies."""
        function = self.function.step if isinstance(self.function, Stateful) else self.function
        names = list(inspect.signature(function).parameters)
        return names[isinstance(self.function, Stateful)]

    def __call__(self, *inputs: Any, memory: Memory) -> tuple[Any, Memory]:
        """Call with what the loop supplies; plain functions leave memory as it is."""
        if isinstance(self.function, Stateful):
            return self.function.step(memory, *inputs, **self.options)
        return self.function(*inputs, **self.options), memory

    @property
    def keeps_losses(self) -> bool:
        """Whether a selection rule lives on the losses that come back with the models: then they
        are charged.
        """
        return (
            "loss" in needs_of(self.function) and self.options.get("loss_source") not in ASKED_FOR
        )


@dataclass(frozen=True)
class Method:
    """A recipe ready to play: one function per slot, and the numbers of the run."""

    selection: Stage
    procedure: Stage
    aggregation: Stage
    signal: Stage | None = None
    distance: Stage | None = None
    clustering: Stage | None = None
    job: LocalJob = field(default_factory=LocalJob)
    lr_decay: float = 1.0  # learning rate of round t = lr * lr_decay ** (t - 1)
    # BatchNorm statistics: the server's average, or each client's own
    bn: Literal["average", "local"] = "average"
    rounds: int = 10
    clients_per_round: int = 10
    evaluate_every: int = 1  # rounds; 0 = only before the first and after the last
    # rounds; one global model at every client; 0 = never (clients are tested at the very end)
    evaluate_clients_every: int = 0
    min_ok: int = 1  # fewer usable replies than this end the run
    # charge a second download to clients that hold the model already, as some papers do
    resend: bool = False
    tariff: Tariff = field(default_factory=Tariff)  # how simulated time is charged

    def job_at(self, round: int) -> LocalJob:
        """What clients do in this round."""
        return (
            self.job
            if self.lr_decay == 1.0
            else replace(self.job, lr=self.job.lr * self.lr_decay ** (round - 1))
        )


@dataclass(frozen=True)
class Setting:
    """What stays the same over a run: the method, the world it plays in, and the model
    everything began with.
    """

    method: Method
    runtime: Runtime
    description: Description
    initial: Params
    seed: int
