"""Numbers as people read them: shares with three digits, other amounts with a unit that fits."""

from __future__ import annotations

import math
from collections.abc import Sequence

STEPS: dict[str, tuple[tuple[float, str], ...]] = {
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")),
    "seconds": ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")),
    "joules": ((3.6e6, "kWh"), (3.6e3, "Wh"), (3.6, "mWh"), (3.6e-3, "µWh")),
}


def amount(value: float, kind: str) -> str:
    """One number with its unit.

    >>> amount(0.91234, "share"), amount(45.8, "count")
    ('0.912', '45.8')
    >>> amount(2_410_000, "bytes"), amount(90, "seconds")
    ('2.41 MB', '1.5 min')
    >>> amount(7200, "joules"), amount(float("inf"), "count")
    ('2 Wh', 'inf')
    >>> amount(float("nan"), "share")
    '–'
    """
    if math.isnan(value):
        return "–"
    if kind == "share":
        return f"{value:.3f}"
    if kind == "count":
        return f"{value:.1f}".removesuffix(".0")
    size, unit = unit_for(value, kind)
    return f"{digits(value / size, 3)} {unit}"


def digits(value: float, count: int) -> str:
    """So many significant digits, never with an exponent.

    >>> digits(139.6, 2), digits(0.2449, 2), digits(13_204.0, 3)
    ('140', '0.24', '13200')
    """
    return f"{float(f'{value:.{count}g}'):.10g}"


def unit_for(value: float, kind: str) -> tuple[float, str]:
    """The unit in which a value reads well: (its size, its name)."""
    steps = STEPS[kind]
    return next((step for step in steps if abs(value) >= step[0]), steps[-1])


def points(difference: float) -> str:
    """A difference of two accuracies.

    >>> points(0.0561), points(0.01), points(-0.0001)
    ('5.6 points', '1.0 point', '0.0 points')
    """
    text = hundredths(difference)
    return f"{text} point{'' if text == '1.0' else 's'}"


def hundredths(difference: float) -> str:
    """The number of points alone; a small loss is 0.0, not -0.0."""
    text = f"{100 * difference:.1f}"
    return "0.0" if text == "-0.0" else text


def count_text(number: int, noun: str) -> str:
    """A number and its noun.

    >>> count_text(1, "seed"), count_text(5, "seed")
    ('1 seed', '5 seeds')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(texts: Sequence[str]) -> str:
    """Several in a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
