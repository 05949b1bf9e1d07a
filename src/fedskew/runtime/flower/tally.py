"""What went over the wire, as the server counts it: messages, and bytes of the arrays in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedskew.runtime.flower.exchange import Letter, Outcome


@dataclass
class Tally:
    """Sums over one Flower run; they stand in ``fleet.json``."""

    messages_down: int = 0
    messages_up: int = 0
    arrays_down: int = 0  # messages with arrays in them
    arrays_up: int = 0
    payload_down: int = 0
    payload_up: int = 0
    # of payload_down: models sent out to be tested, which measures a method and is no part of its
    # cost
    test_down: int = 0
    # client -> why it gives no signal
    withheld: dict[int, str] = field(default_factory=dict)

    def count_sent(self, letter: Letter) -> None:
        """One message to a client."""
        size = letter.note.payload_bytes
        self.messages_down += 1
        self.arrays_down += bool(letter.note.arrays)
        self.payload_down += size
        self.test_down += size if letter.note.values.get("which") == "test" else 0

    def count_reply(self, outcome: Outcome) -> None:
        """What came back, if anything did."""
        self.messages_up += outcome.sent
        if outcome.note is not None:
            self.arrays_up += bool(outcome.note.arrays)
            self.payload_up += outcome.note.payload_bytes
