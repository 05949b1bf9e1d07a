"""What a rule is: a plain function, or a frozen dataclass that remembers.

A plain function takes what the loop supplies by position and its options by keyword; what the loop
must know of it is said with :func:`needs` and :func:`declares`. A rule that remembers, or that has
more to say, derives from :class:`SelectionRule`, :class:`ProcedureRule` or
:class:`AggregationRule`: its fields are its options, its methods the hooks it takes part in. Memory
is passed in and given back, starts as ``{}``, is never changed in place, and is part of the
checkpoint.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class LowestFirst(SelectionRule):
...     skip: int = 0
...     def choose(self, memory, view, rng):
...         return np.flatnonzero(view.available)[self.skip : self.skip + view.budget], memory
>>> bind("selection", LowestFirst, {"skip": 2})
LowestFirst(skip=2)
"""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import numpy as np

from fedskew.types.arrays import Floats, Ints, Memory, Params
from fedskew.types.plan import Ends, LocalJob, Plan
from fedskew.types.runtime import Moments
from fedskew.types.state import Aftermath, Feedback
from fedskew.types.view import Ask, View

Need: TypeAlias = Literal["signal", "clustering", "loss", "latency", "snr", "steps", "pace"]
Layer: TypeAlias = Literal["last", "all", "none"]
LossReport: TypeAlias = Literal["start", "end"]
F = TypeVar("F", bound=Callable[..., Any])


# ---------------------------------------------------------------- what rules of each stage can do


class SelectionRule(ABC):
    """Who trains in this round."""

    # The part of every update that ``learn`` looks at; None: the rule does not learn.
    learns_from: ClassVar[Layer | None] = None
    # Whether ``learn`` also sees how models react to the server's own examples.
    uses_auxiliary: ClassVar[bool] = False

    def needs(self) -> Collection[str]:
        """What it cannot do without, with its options; contradictory options are refused here."""
        return ()

    @property
    def loss_report(self) -> LossReport | None:
        """Which loss clients report with their models: of the received or the trained one; None:
        whatever the recipe says.
        """
        return None

    @abstractmethod
    def choose(
        self, memory: Memory, view: View, rng: np.random.Generator
    ) -> tuple[Ints | Ask, Memory]:
        """Distinct available clients, or a question that is answered in ``view.answers``."""

    def learn(self, memory: Memory, feedback: Feedback) -> Memory:
        """What it remembers after a round (only called if ``learns_from`` is set)."""
        return memory


class ProcedureRule(ABC):
    """In what order the chosen clients train, and on which model."""

    several_models: ClassVar[bool] = False  # one per group or client, so there is no global one
    hands_on: ClassVar[bool] = False  # clients may train on each other's models
    looks_back: ClassVar[bool] = False  # has ``after``
    corrects: ClassVar[bool] = False  # has ``corrections``

    def needs(self) -> Collection[str]:
        """What it cannot do without, with its options; contradictory options are refused here."""
        return ()

    def begin(self, fresh: Callable[[int], Params], size: int) -> Params | None:
        """(S, D) models before the first round, or None for the run's one initial model.

        ``fresh(i)`` is the i-th independent first model (0 is the run's), ``size`` the number of
        clients.
        """
        return None

    @abstractmethod
    def plan(
        self, memory: Memory, ids: Ints, view: View, rng: np.random.Generator
    ) -> tuple[Plan | Ask, Memory]:
        """A plan for these clients, or a question that is answered in ``view.answers``."""

    def job(self, job: LocalJob) -> LocalJob:
        """What clients do under this procedure; a job it has no meaning for is refused here."""
        return job

    def corrections(
        self, memory: Memory, clients: Sequence[int], models: Params, num_weights: int
    ) -> Params | None:
        """(n, W) what is added to every gradient of each client; None: nothing (only called if
        ``corrects`` is set). The memory may be empty still: a trial comes before the first plan.
        """
        return None

    def after(self, memory: Memory, seen: Aftermath) -> tuple[Params, Ints | None, Memory]:
        """Models, everybody's slot and the memory, after a round's models were merged (only called
        if ``looks_back`` is set).
        """
        return seen.models, seen.home, memory

    def rehome(self, memory: Memory, num_slots: int) -> Ints | None:
        """Before an evaluation every client moves to the one of these slots with the lowest loss
        on its TRAINING data; None: nobody moves.
        """
        return None


class AggregationRule(ABC):
    """How the models that come back become the next one."""

    extra_models: ClassVar[int] = 0  # vectors of a model's size that travel with every model
    corrects: ClassVar[bool] = False  # has ``corrections``
    reads_head: ClassVar[bool] = False  # looks at how each class's output moved
    compares: ClassVar[bool] = False  # has nothing to say about one end alone

    def needs(self) -> Collection[str]:
        """What clients report for it with their models, beyond the model ("steps"), and whether it
        cannot do without a "signal".
        """
        return ()

    @abstractmethod
    def merge(self, memory: Memory, model: Params, ends: Ends) -> tuple[Params, Memory]:
        """The next model of a slot."""

    def job(self, job: LocalJob) -> LocalJob:
        """What clients do under this rule; a job its mathematics does not allow is refused here."""
        return job

    def corrections(
        self, memory: Memory, clients: Sequence[int], num_weights: int
    ) -> Params | None:
        """(n, W) what is added to every gradient of each client; None: nothing."""
        return None

    def remarks(self, memory: Memory) -> Mapping[int, str]:
        """Whose models the last merge did not take as they were, and why, for the round's record;
        ``memory`` is what that merge gave back.
        """
        return {}


class FinishRule(ABC):  # noqa: B024 (one of the two below)
    """What is done after the last round."""

    def needs(self) -> Collection[str]:
        """What it cannot do without, with its options; contradictory options are refused here."""
        return ()


class CalibrationRule(FinishRule):
    """The output layer is fitted anew, to what clients tell of their features."""

    clients: int = 0  # how many are asked; 0 = everybody

    @abstractmethod
    def calibrate(
        self, moments: Moments, weight: Floats, bias: Floats, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """The output layer's next weight (C, L) and bias (C,); ``moments`` has one row: all
        clients together.
        """


class SecondActRule(FinishRule):
    """The bodies of several models go side by side under one output layer, which is trained."""

    @property
    @abstractmethod
    def num_rounds(self) -> int:
        """How many rounds train it."""

    @abstractmethod
    def job(self, job: LocalJob) -> LocalJob:
        """What clients do in these rounds, from what they did before."""


Rule: TypeAlias = SelectionRule | ProcedureRule | AggregationRule | FinishRule


# ---------------------------------------------------------------- what plain functions can say


def needs(
    *what: Need, when: Callable[[Mapping[str, Any]], Collection[str]] | None = None
) -> Callable[[F], F]:
    """Say what a plain function cannot do without; the recipe is checked for it, and what clients
    report (losses, latencies, SNRs, steps) is charged.

    ``when``: what more it needs with these options; it may refuse options that contradict each
    other.

    >>> @needs("clustering", when=lambda options: ["loss"] if options["curious"] else [])
    ... def rule(view, rng, *, curious: bool = False): ...
    >>> sorted(bind("selection", rule, {}).needs())
    ['clustering']
    >>> sorted(bind("selection", rule, {"curious": True}).needs())
    ['clustering', 'loss']
    """

    def mark(function: F) -> F:
        function.needs = frozenset(what)  # type: ignore[attr-defined]
        function.needs_when = when  # type: ignore[attr-defined]
        return function

    return mark


def needs_of(function: Callable[..., Any], options: Mapping[str, Any]) -> frozenset[str]:
    """What a plain function says it needs, with these options."""
    always: frozenset[str] = getattr(function, "needs", frozenset())
    when = getattr(function, "needs_when", None)
    return always if when is None else always | frozenset(when(options))


def declares(
    *,
    several_models: bool = False,
    hands_on: bool = False,
    loss_report: Callable[[Mapping[str, Any]], LossReport | None] | None = None,
    compares: bool = False,
) -> Callable[[F], F]:
    """Say of a plain function what a class would say with its attributes.

    >>> @declares(hands_on=True)
    ... def in_a_row(ids, view, rng): ...
    >>> bind("procedure", in_a_row, {}).hands_on
    True
    """

    def mark(function: F) -> F:
        function.several_models = several_models  # type: ignore[attr-defined]
        function.hands_on = hands_on  # type: ignore[attr-defined]
        function.loss_report = loss_report  # type: ignore[attr-defined]
        function.compares = compares  # type: ignore[attr-defined]
        return function

    return mark


@dataclass(frozen=True)
class _Plain:
    """A function with the options a recipe gives it."""

    function: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    def needs(self) -> Collection[str]:
        """What the function says it needs, with these options."""
        return needs_of(self.function, self.options)


class PlainSelection(_Plain, SelectionRule):
    """``select(view, rng, *, options) -> ids`` as a rule."""

    @property
    def loss_report(self) -> LossReport | None:
        """As the function declares it."""
        declared = getattr(self.function, "loss_report", None)
        return None if declared is None else declared(self.options)

    def choose(
        self, memory: Memory, view: View, rng: np.random.Generator
    ) -> tuple[Ints | Ask, Memory]:
        """What the function says; it remembers nothing."""
        return self.function(view, rng, **self.options), memory


class PlainProcedure(_Plain, ProcedureRule):
    """``procedure(ids, view, rng, *, options) -> Plan`` as a rule."""

    @property
    def several_models(self) -> bool:  # type: ignore[override]
        """As the function declares it."""
        return bool(getattr(self.function, "several_models", False))

    @property
    def hands_on(self) -> bool:  # type: ignore[override]
        """As the function declares it."""
        return bool(getattr(self.function, "hands_on", False))

    def plan(
        self, memory: Memory, ids: Ints, view: View, rng: np.random.Generator
    ) -> tuple[Plan | Ask, Memory]:
        """What the function says; it remembers nothing."""
        return self.function(ids, view, rng, **self.options), memory


class PlainAggregation(_Plain, AggregationRule):
    """``aggregate(model, ends, *, options) -> model`` as a rule."""

    @property
    def compares(self) -> bool:  # type: ignore[override]
        """As the function declares it."""
        return bool(getattr(self.function, "compares", False))

    def merge(self, memory: Memory, model: Params, ends: Ends) -> tuple[Params, Memory]:
        """What the function says; it remembers nothing."""
        return self.function(model, ends, **self.options), memory


class PlainCalibration(_Plain, CalibrationRule):
    """``finish(moments, weight, bias, rng, *, options) -> weight, bias`` as a rule."""

    def calibrate(
        self, moments: Moments, weight: Floats, bias: Floats, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """What the function says."""
        fitted: tuple[Floats, Floats] = self.function(moments, weight, bias, rng, **self.options)
        return fitted


# ---------------------------------------------------------------- from a name's target to a rule

RULES: dict[
    str, tuple[type, type]
] = {  # stage -> what its classes derive from, what lifts functions
    "selection": (SelectionRule, PlainSelection),
    "procedure": (ProcedureRule, PlainProcedure),
    "aggregation": (AggregationRule, PlainAggregation),
    "finish": (FinishRule, PlainCalibration),
}


def bind(stage: str, target: Any, options: Mapping[str, Any]) -> Any:
    """The rule of a stage: a class made with its options, or a function lifted with its own."""
    kind, lift = RULES[stage]
    if isinstance(target, kind):
        return target
    if inspect.isclass(target):
        if not issubclass(target, kind) or not dataclasses.is_dataclass(target):
            raise TypeError(f"{target.__name__} is no dataclass that derives from {kind.__name__}")
        return target(**options)  # a class without its main method is refused by Python here
    return lift(target, {**_defaults(target), **options})


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    keywords = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    return {p.name: p.default for p in keywords if p.default is not inspect.Parameter.empty}
