"""Hellos under way. Nobody waits for a node that does not answer: its reply is taken in whenever it
comes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from flwr.serverapp import Grid

from fedskew.runtime.flower.exchange import Letter, Outcome, UnreadableReply, fetch, late, post


@dataclass
class Greetings:
    """Messages to nodes that have not said who they are."""

    grid: Grid
    deadline_seconds: float  # after this a hello counts as unanswered
    under_way: dict[str, tuple[Letter, float]] = field(default_factory=dict)  # by message id
    asked_before: set[int] = field(default_factory=set)  # nodes that are not waited for any more
    one_by_one: bool = False  # since somebody sent what Flower cannot read

    @property
    def nodes(self) -> set[int]:
        """Who has been asked and has not answered yet."""
        return {letter.node for letter, _ in self.under_way.values()}

    def send(self, letters: Sequence[Letter]) -> list[tuple[Letter, Outcome]]:
        """Ask; returns what could not even be sent."""
        places, failed = post(self.grid, letters, self.deadline_seconds)
        now = time.monotonic()
        for name, place in places.items():
            self.under_way[name] = (letters[place], now)
        return [(letters[place], outcome) for place, outcome in failed.items()]

    def collect(self) -> list[tuple[Letter, Outcome]]:
        """Who has answered by now, or is not going to."""
        asked = {name: letter for name, (letter, _) in self.under_way.items()}
        try:
            found = fetch(self.grid, asked, one_by_one=self.one_by_one)
        except UnreadableReply:  # what came with it is lost: everybody is asked again
            self.one_by_one = True
            self.under_way.clear()
            return []
        now = time.monotonic()
        for name, (_, since) in self.under_way.items():
            if name not in found and now - since >= self.deadline_seconds:
                found[name] = late(self.deadline_seconds)
        answered = [(self.under_way.pop(name)[0], outcome) for name, outcome in found.items()]
        self.asked_before |= {letter.node for letter, _ in answered}
        return answered

    def worth_waiting(self, seconds: float) -> bool:
        """Whether a node that is asked for the first time may still answer within this time."""
        now = time.monotonic()
        return any(
            letter.node not in self.asked_before and now - since < seconds
            for letter, since in self.under_way.values()
        )
