"""Asking again what was refused: soon at first, then less and less often."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

FIRST_SECONDS, LONGEST_SECONDS = 5.0, 300.0


@dataclass
class Backoff:
    """Who has refused how often, and when the next attempt is due.

    >>> waiting = Backoff()
    >>> waiting.failed(7), waiting.failed(7), waiting.is_due(7), waiting.is_due(8)
    (5.0, 10.0, False, True)
    >>> waiting.at_once(7); waiting.is_due(7)
    True
    >>> waiting.forget(7), waiting.forget(7)
    (2, 0)
    """

    tries: dict[int, int] = field(default_factory=dict)
    due: dict[int, float] = field(default_factory=dict)

    def failed(self, who: int) -> float:
        """One more refusal; in how many seconds it is asked again."""
        self.tries[who] = self.tries.get(who, 0) + 1
        seconds = min(FIRST_SECONDS * 2.0 ** (self.tries[who] - 1), LONGEST_SECONDS)
        self.due[who] = time.monotonic() + seconds
        return seconds

    def is_due(self, who: int) -> bool:
        """Whether it may be asked now."""
        return time.monotonic() >= self.due.get(who, 0.0)

    def at_once(self, who: int) -> None:
        """Something has changed: it is worth asking now."""
        self.due.pop(who, None)

    def forget(self, who: int) -> int:
        """It has answered; how often it had refused before."""
        self.due.pop(who, None)
        return self.tries.pop(who, 0)
