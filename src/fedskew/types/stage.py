"""A stage that remembers, and what a rule says it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from fedskew.types.arrays import Memory, Params
from fedskew.types.plan import LocalJob

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Stateful:
    """A stage that remembers: ``step(memory, *inputs, **options) -> (result, memory)``. Memory starts as ``{}``.

    A selection rule may also ``learn(memory, feedback, **options) -> memory`` after every round, from the updates of the
    ``layer`` it names, or with ``auxiliary`` from the server's own examples. An aggregation rule may change what clients do:
    ``job(job, **options) -> job`` for everyone, ``corrections(memory, clients, num_weights, **options)`` for each client (a
    vector added to every gradient); ``extra_models`` vectors of a model's size then travel with each model, both ways.
    """

    step: Callable[..., tuple[Any, Memory]]
    learn: Callable[..., Memory] | None = None
    layer: Literal["last", "all", "none"] = "last"  # an option ``layer`` of the rule comes first
    auxiliary: bool = False
    job: Callable[..., LocalJob] | None = None
    corrections: Callable[..., Params] | None = None
    extra_models: int = 0


def needs(*what: Literal["signal", "clustering", "loss", "latency", "snr"], **when: str) -> Callable[[F], F]:
    """Say what a selection rule cannot do without; the recipe is checked for it, and losses, latencies and SNRs are charged.

    ``needs(snr="use_snr")``: only if the rule's option ``use_snr`` is on.

    >>> @needs("clustering")
    ... def rule(view, rng): ...
    >>> needs_of(rule)
    frozenset({'clustering'})
    """

    def mark(function: F) -> F:
        function.needs, function.needs_when = frozenset(what), when  # type: ignore[attr-defined]
        return function

    return mark


def needs_of(function: object, options: Mapping[str, Any] | None = None) -> frozenset[str]:
    """What :func:`needs` said of a rule, given its options."""
    target = function.step if isinstance(function, Stateful) else function
    found: frozenset[str] = getattr(target, "needs", frozenset())
    when: Mapping[str, str] = getattr(target, "needs_when", {})
    return found | {what for what, option in when.items() if options and options.get(option)}
