"""Which fields of a :class:`LocalJob` a fast path honours. A job that asks for anything else is
left to autograd.

A fast path lists the fields it reads and the values it can do. A field it does not list must have
its default: so a field that is new in :class:`LocalJob` is never silently ignored, and a fast path
that has learnt it says so in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, TypeAlias

from fedskew.types import LocalJob

Honoured: TypeAlias = Mapping[str, Callable[[Any], bool]]  # field -> whether its value can be done


def any_value(value: object) -> bool:
    """Whatever the job says is done."""
    return True


def one_of(*values: object) -> Callable[[Any], bool]:
    """Only these values can be done."""
    return lambda value: value in values


# What is done around the steps, the same for every path.
AROUND_STEPS: Honoured = dict.fromkeys(
    ("epochs", "batch", "max_examples", "report_loss"), any_value
)


def covers(honoured: Honoured, job: LocalJob) -> bool:
    """Whether a fast path does all that a job asks for.

    >>> covers({"lr": any_value}, LocalJob(lr=0.3)), covers({"lr": any_value}, LocalJob(epochs=2))
    (True, False)
    """
    return all(
        honoured.get(field.name, _default_of(field))(getattr(job, field.name))
        for field in fields(job)
    )


def _default_of(field: Field[Any]) -> Callable[[Any], bool]:
    """Whether a value is the field's default; a field without one has no value that can be left
    out.
    """
    if field.default is not MISSING:
        return one_of(field.default)
    return one_of(field.default_factory()) if field.default_factory is not MISSING else one_of()
