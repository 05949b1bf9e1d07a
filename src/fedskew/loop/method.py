"""A recipe made ready to play: a rule for every slot of the pipeline, and the world it plays in."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from fedskew.accounting.links import Tariff
from fedskew.loop.guard import Guard
from fedskew.loop.trust.options import Trust
from fedskew.types import (
    AggregationRule,
    Description,
    FinishRule,
    LocalJob,
    Params,
    ProcedureRule,
    Runtime,
    SelectionRule,
    bind,
)

R = TypeVar("R")


@dataclass(frozen=True)
class Stage:
    """A plain function in one slot of the pipeline, with the options the recipe gave it."""

    name: str
    function: Any
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def wants(self) -> str:
        """The name of the first thing the loop supplies."""
        return next(iter(inspect.signature(self.function).parameters))

    def __call__(self, *inputs: Any) -> Any:
        """Call with what the loop supplies."""
        return self.function(*inputs, **self.options)


@dataclass(frozen=True)
class Named(Generic[R]):
    """A rule with its options in it, under the name by which the recipe calls it."""

    name: str
    rule: R


def named(
    stage: str, name: str, target: Any, options: Mapping[str, Any] | None = None
) -> Named[Any]:
    """A function or class of a stage (selection, procedure, aggregation) as the loop plays it."""
    return Named(name, bind(stage, target, options or {}))


@dataclass(frozen=True)
class Method:
    """A recipe ready to play: one function per slot, and the numbers of the run."""

    selection: Named[SelectionRule]
    procedure: Named[ProcedureRule]
    aggregation: Named[AggregationRule]
    finish: Named[FinishRule] | None = None  # after the last round
    signal: Stage | None = None
    distance: Stage | None = None
    clustering: Stage | None = None
    job: LocalJob = field(default_factory=LocalJob)
    lr_decay: float = 1.0  # learning rate of round t = lr * lr_decay ** (t - 1)
    schedule: Literal["constant", "cosine", "step"] = "constant"  # and this times
    step_every: int = 0
    step_factor: float = 0.1
    # BatchNorm statistics: the server's average, or each client's own
    bn: Literal["average", "local"] = "average"
    rounds: int = 10
    clients_per_round: int = 10
    evaluate_every: int = 1  # rounds; 0 = only before the first and after the last
    # rounds; one global model at every client; 0 = never (clients are tested at the very end)
    evaluate_clients_every: int = 0
    # what is tested and saved: a running mean over about so many last rounds; 1 = the last model
    served_rounds: int = 1
    min_ok: int = 1  # fewer usable replies than this end the run
    # charge a second download to clients that hold the model already, as some papers do
    resend: bool = False
    tariff: Tariff = field(default_factory=Tariff)  # how simulated time is charged
    trust: Trust = field(default_factory=Trust)  # whether what clients say is checked
    guard: Guard = field(default_factory=Guard)  # against hostile clients, whatever the rule

    def job_at(self, round: int) -> LocalJob:
        """What clients do in this round."""
        share = self.lr_share(round)
        return self.job if share == 1.0 else replace(self.job, lr=self.job.lr * share)

    def lr_share(self, round: int) -> float:
        """The learning rate of a round, as a share of the first one's.

        >>> from fedskew.recipe import method_of, resolve
        >>> cosine = method_of(resolve({"local": {"schedule": "cosine"}, "run": {"rounds": 4}}))
        >>> [round(cosine.lr_share(t), 3) for t in (1, 2, 3, 4)]
        [1.0, 0.854, 0.5, 0.146]
        """
        share, gone = self.lr_decay ** (round - 1), round - 1
        if self.schedule == "cosine":
            share *= (1 + math.cos(math.pi * min(1.0, gone / max(self.rounds, 1)))) / 2
        if self.schedule == "step":
            share *= self.step_factor ** (gone // self.step_every)
        return share


@dataclass(frozen=True)
class Setting:
    """What stays the same over a run: the method, the world it plays in, and the first model."""

    method: Method
    runtime: Runtime
    description: Description
    initial: Params
    seed: int
