"""What this machine can do: a fixed piece of work, timed beside whatever is measured.

Limits on times are multiples of it, so a slower machine is no failure. It is a third each of plain
Python, sorting and matrix products, as the rules and clusterings are; on the machines for which the
limits were set it took about 10 ms of one core.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from table import Figure

Clock = Callable[[], float]
REPEATS = 5


def work() -> float:
    """The piece of work."""
    numbers = np.sin(np.arange(120_000.0))
    matrix = numbers[:40_000].reshape(200, 200)
    total = 0
    for number in range(80_000):
        total += number % 7
    for _ in range(16):
        matrix = matrix @ matrix.T
        matrix /= np.abs(matrix).max()
    ends = np.sort(numbers)[100] + np.sort(-numbers)[100] + matrix[0, 0]
    return total + float(ends)


def yardstick(clock: Clock = time.process_time) -> float:
    """Seconds that it takes now, on this clock: the median of a few times."""
    seconds = []
    for _ in range(REPEATS):
        began = clock()
        work()
        seconds.append(clock() - began)
    return statistics.median(seconds)


def in_yardsticks(
    name: str, measure: Callable[[], float], limit: float | None, clock: Clock = time.process_time
) -> Figure:
    """Seconds that ``measure`` gives, in yardsticks timed before and after it."""
    before = yardstick(clock)
    seconds = measure()
    unit = (before + yardstick(clock)) / 2
    return Figure(f"{name} / yardstick", seconds / unit, limit, _said(seconds, unit))


def _said(seconds: float, unit: float) -> str:
    return f"{1e3 * seconds:.1f} ms, yardstick {1e3 * unit:.1f} ms"
