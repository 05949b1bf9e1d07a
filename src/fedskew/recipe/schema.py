"""What options a function or a table takes, read from its signature, and whether a value fits."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from fedskew.errors import RecipeError


@dataclass(frozen=True)
class Option:
    """One option: its type, and its default unless it must be given."""

    name: str
    kind: Any
    default: Any = None
    required: bool = False

    @property
    def text(self) -> str:
        """Type and default as a person reads them.

        >>> Option("lr", float, 0.1).text, Option("how", Literal["a", "b"], required=True).text
        ('float = 0.1', "'a' | 'b', required")
        """
        return (
            f"{type_text(self.kind)}, required"
            if self.required
            else f"{type_text(self.kind)} = {self.default!r}"
        )


@cache
def options_of(source: Any) -> Mapping[str, Option]:
    """The keyword-only parameters of a function, or the fields of a dataclass.

    >>> def rule(view, rng, *, d: int = 20): ...
    >>> options_of(rule)
    {'d': Option(name='d', kind=<class 'int'>, default=20, required=False)}
    """
    if inspect.isclass(source) and dataclasses.is_dataclass(source):
        hints = typing.get_type_hints(source)
        return {
            f.name: _option(f.name, hints[f.name], f.default, dataclasses.MISSING)
            for f in dataclasses.fields(source)
            if "table" not in f.metadata  # those have a table of their own
        }
    return _of_function(source)


def _of_function(function: Callable[..., Any]) -> Mapping[str, Option]:
    parameters = inspect.signature(function).parameters.values()
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    return {
        p.name: _option(p.name, _evaluated(p.annotation, scope), p.default, inspect.Parameter.empty)
        for p in parameters
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }


def _evaluated(annotation: Any, scope: Mapping[str, Any]) -> Any:
    """Annotations are text under ``from __future__ import annotations``; evaluated one by one, so
    that a type which is only imported for type checking elsewhere in the signature does no harm.
    """
    if annotation is inspect.Parameter.empty:
        return Any
    return eval(annotation, dict(scope)) if isinstance(annotation, str) else annotation


def _option(name: str, kind: Any, default: Any, missing: Any) -> Option:
    return Option(name, kind, required=True) if default is missing else Option(name, kind, default)


def type_text(kind: Any) -> str:
    """A type in the words of a recipe.

    >>> type_text(int | None), type_text(tuple[int, ...]), type_text(Literal["x"])
    ('int | none', 'list of int', "'x'")
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return " | ".join(repr(a) for a in arguments)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(type_text(a) for a in arguments)
    if origin in (tuple, list) or (
        isinstance(origin, type) and issubclass(origin, typing.Sequence)
    ):
        return f"list of {type_text(arguments[0])}" if arguments else "list"
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return "{" + ", ".join(f"{o.name}: {o.text}" for o in options_of(kind).values()) + "}"
    return (
        "none"
        if kind is type(None)
        else "any"
        if kind is Any
        else str(getattr(kind, "__name__", kind))
    )


def plain(value: Any) -> Any:
    """Numbers and arrays of numpy as Python's own.

    >>> import numpy as np
    >>> plain(np.float32(0.5)), plain((np.int64(3),)), plain(np.arange(2))
    (0.5, (3,), [0, 1])
    """
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return type(value)(plain(inner) for inner in value)
    return value


def inner_table(kind: Any) -> type | None:
    """The dataclass behind an option that is itself a table; None for any other option.

    >>> inner_table(Option | None), inner_table(int)
    (<class 'fedskew.recipe.schema.Option'>, None)
    """
    kinds = [k for k in (kind, *typing.get_args(kind)) if isinstance(k, type)]
    return next((k for k in kinds if dataclasses.is_dataclass(k)), None)


def check_value(where: str, option: Option, value: Any) -> Any:
    """The value in the option's own type, or a :class:`RecipeError`.

    >>> check_value("local.lr", Option("lr", float), 1)
    1.0
    """
    fits, converted = _fit(option.kind, plain(value))
    if not fits:
        raise RecipeError(where, f"{value!r} is not {type_text(option.kind)}", "Correct the value")
    return converted


def _fit(kind: Any, value: Any) -> tuple[bool, Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or kind is None:
        return True, value
    if origin is Literal:
        return value in arguments and not isinstance(value, bool), value
    if origin in (typing.Union, types.UnionType):
        tried = [_fit(a, value) for a in arguments]
        return next(((True, v) for ok, v in tried if ok), (False, value))
    if origin in (tuple, list) or (
        isinstance(origin, type) and issubclass(origin, typing.Sequence)
    ):
        return _fit_list(arguments, value)
    if kind is float:
        return (True, float(value)) if _number(value) else (False, value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    if isinstance(kind, type):
        return isinstance(value, kind), value
    return True, value


def _number(value: Any) -> bool:
    """Whether it can become a float: an integer of 400 digits cannot."""
    return isinstance(value, float) or (
        isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**308
    )


def _fit_list(arguments: tuple[Any, ...], value: Any) -> tuple[bool, Any]:
    if not isinstance(value, list | tuple):
        return False, value
    tried = [_fit(arguments[0] if arguments else Any, v) for v in value]
    return all(ok for ok, _ in tried), tuple(v for _, v in tried)
