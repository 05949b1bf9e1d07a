"""The border: nothing that a client says is used before :func:`why_refused` has held it against a
form, whoever sent it and however it came.

A form names what a reply must hold and bounds each of it: kind, shape, sign, size, finiteness. A
reply outside its form costs that client its update (or its hello, its label counts, its score),
with the reason; never the run. The bounds are far from what honest clients say, and near enough
that no sum over a million clients overflows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from fedskew.types import Layout, LocalJob, Params

MOST_EXAMPLES = 10**9  # of one client; a million such clients still add up exactly in float64
MOST_SECONDS = 1e8  # three years of training in one round
MOST_LOSS = float(np.finfo(np.float32).max)  # what float32 arithmetic can give; rules see far less
LEAST_LOSS = -1.0  # a cross-entropy is not negative, but rounding of huge logits can make it so
MOST_COUNT = 1e15  # of a noised label count, either way
# Root mean square of a model's weights. Those of our recipes stay below 1; raw features of 10^6
# under SGD may give 10^5. An average of such models is finite whatever else is in it. The bound is
# absolute: one relative to the model that was sent would let a client double it every round.
LARGEST_WEIGHTS = 1e6
LARGEST_STATISTICS = 1e15  # the same for buffers: BatchNorm's variance of raw features is large
MOST_TEXT = 200  # characters of a client's own words, wherever they are shown
NUMBER = (int, float)


class Rule(Protocol):
    """What one named part of a reply must be."""

    def why_not(self, name: str, value: Any) -> str:
        """The reason it is not, or ``""``."""


Form = Mapping[str, Rule]


def why_refused(said: Mapping[str, Any], form: Form) -> str:
    """The reason a reply cannot be used, or ``""``. Parts that the form does not name are ignored.

    >>> form = {"client": Number(0, 9, whole=True), "votes": ListOf(2, Number(0, 5, whole=True))}
    >>> why_refused({"client": 3, "votes": [5, 0]}, form)
    ''
    >>> why_refused({"client": 10**30, "votes": [5, 0]}, form)
    'client is 1e+30, not within 0 and 9'
    >>> why_refused({"client": 3, "votes": [5, float("nan")]}, form)
    'votes is no whole number'
    """
    for name, rule in form.items():
        if name not in said:
            return f"no {name}"
        why = rule.why_not(name, said[name])
        if why:
            return why
    return ""


# ---------------------------------------------------------------- rules


@dataclass(frozen=True)
class Number:
    """A number from ``low`` to ``high``. ``nan``: it may also be unknown or infinite."""

    low: float
    high: float
    whole: bool = False
    nan: bool = False

    def why_not(self, name: str, value: Any) -> str:
        """Anything else, of whatever size, is refused."""
        value = plain(value)
        if not isinstance(value, int if self.whole else NUMBER) or isinstance(value, bool):
            return f"{name} is no {'whole ' if self.whole else ''}number"
        if self.low <= value <= self.high:
            return ""
        if isinstance(value, float) and not math.isfinite(value):
            return "" if self.nan else f"non-finite {name}"
        return f"{name} is {shown(value)}, not within {self.low:g} and {self.high:g}"


@dataclass(frozen=True)
class ListOf:
    """So many values, each by one rule."""

    length: int
    rule: Rule

    def why_not(self, name: str, value: Any) -> str:
        """The first of them that is wrong."""
        if not isinstance(value, list) or len(value) != self.length:
            return f"{name} is no list of {self.length}"
        return next((why for one in value if (why := self.rule.why_not(name, one))), "")


@dataclass(frozen=True)
class Row:
    """Some values, each by a rule of its own."""

    rules: tuple[Rule, ...]

    def why_not(self, name: str, value: Any) -> str:
        """The first of them that is wrong."""
        if not isinstance(value, list) or len(value) != len(self.rules):
            return f"{name} is no list of {len(self.rules)}"
        pairs = zip(self.rules, value, strict=True)
        return next((why for rule, one in pairs if (why := rule.why_not(name, one))), "")


@dataclass(frozen=True)
class Array:
    """Numbers of one type and shape, each from ``low`` to ``high``."""

    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float

    def why_not(self, name: str, value: Any) -> str:
        """By type and shape first, then by what is in it."""
        if not isinstance(value, np.ndarray) or value.dtype.str != self.dtype:
            return f"{name} is no array of {self.dtype}"
        if value.shape != self.shape:
            return f"{name} has a wrong shape: {value.shape} instead of {self.shape}"
        if not np.isfinite(value).all():
            return f"non-finite {name}"
        outside = value[(value < self.low) | (value > self.high)]
        return Number(self.low, self.high).why_not(name, outside[0]) if len(outside) else ""


@dataclass(frozen=True)
class Model:
    """A model of a layout, as a flat vector."""

    layout: Layout

    def why_not(self, name: str, value: Any) -> str:
        """By type and shape first, then by what is in it."""
        if not isinstance(value, np.ndarray) or value.dtype != np.float32:
            return f"{name} is no array of float32"
        if value.shape != (self.layout.size,):
            return f"wrong shape: {value.shape} instead of ({self.layout.size},)"
        return why_unfit(value, self.layout)


# ---------------------------------------------------------------- models


def why_unfit(model: Params, layout: Layout) -> str:
    """The reason a model of the right shape cannot be averaged with others, or ``""``.

    One dot product decides almost always (15 us for 200,000 numbers).

    >>> layout = Layout.of([("w", (2,), "weight"), ("bn.running_var", (1,), "buffer")])
    >>> why_unfit(np.array([1, np.inf, 1], np.float32), layout)
    'non-finite parameters'
    >>> why_unfit(np.array([1, 1e30, 1], np.float32), layout)
    'parameters too large: their root mean square is 7.1e+29, the most is 1e+06'
    >>> why_unfit(np.array([1, 1, -1], np.float32), layout)
    'a negative bn.running_var'
    """
    weights = layout.num_weights
    why = too_large(model[:weights])
    if why or weights == layout.size:
        return why
    why = too_large(model[weights:], LARGEST_STATISTICS)
    if why:
        return why
    signless = (block for block in layout.signless if model[block.offset : block.stop].min() < 0)
    return next((f"a negative {shown(block.name)}" for block in signless), "")


def too_large(numbers: Params, most: float = LARGEST_WEIGHTS) -> str:
    """The reason these numbers cannot be averaged with others, or ``""``."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.dot(numbers, numbers) <= most * most * len(numbers):
            return ""
    if not np.isfinite(numbers).all():
        return "non-finite parameters"
    size = float(np.sqrt(np.square(numbers, dtype=np.float64).mean()))
    if size <= most:
        return ""
    return f"parameters too large: their root mean square is {size:.2g}, the most is {most:.0e}"


# ---------------------------------------------------------------- forms


LOSS, SECONDS = Number(LEAST_LOSS, MOST_LOSS), Number(0, MOST_SECONDS)
OBJECTIVE = Number(-MOST_LOSS, MOST_LOSS)  # of another objective: FedLC's paper has no lower bound


def training_form(examples: int = MOST_EXAMPLES, job: LocalJob | None = None) -> Form:
    """What a client that trained must say beside its model. ``examples``: how many it has; ``job``:
    what it was asked to do, without which it may also have done nothing.
    """
    most_steps, least, loss = examples, 0, OBJECTIVE
    if job is not None:
        examples, least = most_drawn(examples, job.max_examples), 1
        most_steps = job.epochs * -(-examples // job.batch)
        loss = LOSS if job.objective == "cross_entropy" else OBJECTIVE
    return _training_form(least, most_steps, examples, loss)


@lru_cache(maxsize=4096)  # the same clients come again and again
def _training_form(least: int, steps: int, examples: int, loss: Number) -> Form:
    return {
        "loss": loss,
        "seconds": SECONDS,
        "steps": Number(least, steps, whole=True),
        "examples": Number(least, examples, whole=True),
    }


def most_drawn(examples: int, max_examples: int) -> int:
    """How many examples a client with so many can say it trained on. A draw of ``max_examples`` may
    repeat its own, and a policy may round it up, by at most half of what it rounds to (which is no
    more than ``examples``).

    >>> most_drawn(200, 0), most_drawn(200, 50), most_drawn(100, 160)
    (200, 200, 211)
    """
    return max(examples, max_examples + examples // 2 + 1) if max_examples else examples


# ---------------------------------------------------------------- words


def plain(value: Any) -> Any:
    """A number of numpy's as one of Python's: comparing those has no limits."""
    return value.item() if isinstance(value, np.generic) else value


def shown(value: Any) -> str:
    """A value of somebody else's, short enough to print and without anything that could end a line
    or move a cursor.

    >>> shown(10**400), shown(-0.25), shown("a\\nb\\x1b[2J\\ud800 c"), len(shown("x" * 10**6))
    ('a number beyond 1e300', '-0.25', 'a b[2J c', 200)
    """
    value = plain(value)
    if isinstance(value, NUMBER):
        return f"{float(value):.6g}" if -1e300 < value < 1e300 else "a number beyond 1e300"
    if not isinstance(value, str):
        return f"a {type(value).__name__}"
    line = " ".join(value[: 4 * MOST_TEXT].split())
    return "".join(letter for letter in line if letter.isprintable())[:MOST_TEXT]
