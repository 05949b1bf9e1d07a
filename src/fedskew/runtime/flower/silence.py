"""Clients that were asked how good a model is and did not say: the log says it once, the record of
the round has each of them with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fedskew.types import Unscored


@dataclass
class Silence:
    """What is missing since it was last taken.

    >>> quiet = Silence(print)
    >>> quiet.tested([0, 1, 2]); quiet.missed(1, "the node has left")
    client 1 says nothing of the model's quality: the node has left
    >>> quiet.take(), quiet.take()
    (Unscored(reasons={1: 'the node has left'}, covers=2), Unscored(reasons={}, covers=None))
    """

    say: Callable[[str], None]
    last: dict[int, str] = field(default_factory=dict)  # client -> why, the last time
    asked: set[int] = field(default_factory=set)  # clients to be tested
    reasons: dict[int, str] = field(default_factory=dict)

    def tested(self, clients: Iterable[int]) -> None:
        """These clients have tests and are asked for them."""
        self.asked |= {int(client) for client in clients}

    def missed(self, client: int, why: str) -> None:
        """The run goes on without what this client was asked."""
        if self.last.get(client) != why:
            self.say(f"client {client} says nothing of the model's quality: {why}")
        self.last[client] = self.reasons[client] = why

    def take(self) -> Unscored:
        """What is missing, and how many clients the figures cover if it is not all of them."""
        reasons, asked = dict(sorted(self.reasons.items())), self.asked
        self.reasons, self.asked = {}, set()
        missing = asked & set(reasons)
        return Unscored(reasons, len(asked) - len(missing) if missing else None)
