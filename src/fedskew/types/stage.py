"""A stage that remembers, and what a rule says it needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from fedskew.types.arrays import Ints, Memory, Params
from fedskew.types.plan import LocalJob

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Stateful:
    """A stage that remembers: ``step(memory, *inputs, **options) -> (result, memory)``. Memory
    starts as ``{}``.

    A selection rule may also ``learn(memory, feedback, **options) -> memory`` after every round,
    from the updates of the ``layer`` it names, or with ``auxiliary`` from the server's own
    examples. An aggregation rule may change what clients do: ``job(job, **options) -> job`` for
    everyone, ``corrections(memory, clients, num_weights, **options)`` for each client (a vector
    added to every gradient); ``extra_models`` vectors of a model's size then travel with each
    model, both ways.

    A procedure may also return an Ask instead of a plan, and may take care of its model slots:
    ``begin(fresh, size, **options) -> models`` (S, D) before the first round, where ``fresh(i)`` is
    the i-th independent first model (0 is the run's own) and ``size`` the number of clients;
    ``after(memory, aftermath, **options) -> (models, home, memory)`` when a round's models have
    been merged; ``rehome(memory, num_slots, **options) -> slots``: before an evaluation every
    client moves to the one of these slots with the lowest loss on its TRAINING data; and ``job``
    and ``corrections`` as above, where ``corrections(memory, clients, models, num_weights,
    **options)`` also sees the models.
    """

    step: Callable[..., tuple[Any, Memory]]
    learn: Callable[..., Memory] | None = None
    layer: Literal["last", "all", "none"] = "last"  # an option ``layer`` of the rule comes first
    auxiliary: bool = False
    job: Callable[..., LocalJob] | None = None
    corrections: Callable[..., Params] | None = None
    extra_models: int = 0
    begin: Callable[..., Params] | None = None
    after: Callable[..., tuple[Params, Ints | None, Memory]] | None = None
    rehome: Callable[..., Ints] | None = None


def needs(
    *what: Literal["signal", "clustering", "loss", "latency", "snr", "steps"],
    when: Callable[[Mapping[str, Any]], Collection[str]] | None = None,
) -> Callable[[F], F]:
    """Say what a selection rule or a procedure cannot do without; the recipe is checked for it, and
    what clients report (losses, latencies, SNRs, steps) is charged. ``when``: what more it needs
    with these options; it may refuse options that contradict each other.

    >>> @needs("clustering", when=lambda options: ["loss"] if options["curious"] else [])
    ... def rule(view, rng, *, curious: bool = False): ...
    >>> sorted(needs_of(rule)), sorted(needs_of(rule, {"curious": True}))
    (['clustering'], ['clustering', 'loss'])
    """

    def mark(function: F) -> F:
        function.needs = frozenset(what)  # type: ignore[attr-defined]
        function.needs_when = when  # type: ignore[attr-defined]
        return function

    return mark


def needs_of(function: object, options: Mapping[str, Any] | None = None) -> frozenset[str]:
    """What :func:`needs` said of a rule, and of the rule with these options (all of them, as in
    a resolved recipe).
    """
    target = function.step if isinstance(function, Stateful) else function
    found: frozenset[str] = getattr(target, "needs", frozenset())
    when = getattr(target, "needs_when", None)
    return found if options is None or when is None else found | frozenset(when(options))
