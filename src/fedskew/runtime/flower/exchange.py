"""One batch of messages out, exactly one outcome for each: ok, error, timeout or non-finite.

Replies are matched by the id of the message they answer: the error that Flower makes up for a dead
node carries the SuperLink's number as its sender. ``send_and_receive`` would do, but it looks for
replies only every 3 seconds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from fedskew.runtime.flower.records import ForeignMessage, Note, from_records, to_records

GONE = 5  # Flower's code for a node without heartbeats
AT_ONCE = 64  # messages in one request; a request has a size limit
# the longer replies take, the less often the SuperLink is asked: at most this share of the time is
# lost
PATIENT = 0.05
MARGIN_SECONDS = 5.0  # a message outlives its deadline by this much, then the SuperLink forgets it


@dataclass(frozen=True)
class Letter:
    """One message to one node."""

    node: int
    kind: str  # Flower's message type: train, evaluate, query.hello ...
    note: Note
    layout: str = ""  # the reply must be for a model of this layout


@dataclass(frozen=True)
class Outcome:
    """What became of one letter."""

    status: Literal["ok", "error", "timeout", "non-finite"]
    note: Note | None = None
    why: str = ""
    sent: bool = False  # a reply of ours came back, usable or not
    gone: bool = False  # Flower says the node has left

    @property
    def lost(self) -> bool:
        """Nobody seems to be at the other end."""
        return self.gone or self.status == "timeout"


def exchange(
    grid: Grid, letters: Sequence[Letter], *, deadline_seconds: float, poll_seconds: float = 0.5
) -> list[Outcome]:
    """Send all letters at once and wait for the replies, not longer than the deadline. One
    outcome per letter, in order.
    """
    if not letters:
        return []
    began = time.monotonic()
    until = began + deadline_seconds
    places, outcomes = post(grid, letters, deadline_seconds)
    while places:
        for name, outcome in fetch(grid, {name: letters[i] for name, i in places.items()}).items():
            outcomes[places.pop(name)] = outcome
        now = time.monotonic()
        if not places or now >= until:
            break
        time.sleep(min(max(poll_seconds, PATIENT * (now - began)), until - now))
    return [outcomes.get(place, late(deadline_seconds)) for place in range(len(letters))]


def late(seconds: float) -> Outcome:
    """No reply in time."""
    return Outcome("timeout", why=f"no reply within {seconds:g} s")


def post(
    grid: Grid, letters: Sequence[Letter], deadline_seconds: float
) -> tuple[dict[str, int], dict[int, Outcome]]:
    """(message id -> place of what is under way, place -> outcome of what could not be sent)."""
    ttl = deadline_seconds + MARGIN_SECONDS
    messages = [
        Message(to_records(letter.note), letter.node, letter.kind, ttl=ttl) for letter in letters
    ]
    taken: set[str] = set()
    for begin in range(0, len(messages), AT_ONCE):
        names = grid.push_messages(list(messages[begin : begin + AT_ONCE]))
        taken |= {str(name) for name in names if name}
    places = {
        m.metadata.message_id: place
        for place, m in enumerate(messages)
        if m.metadata.message_id in taken
    }
    lost = Outcome("error", why="the SuperLink did not take the message")
    return places, dict.fromkeys(set(range(len(messages))) - set(places.values()), lost)


def fetch(grid: Grid, asked: Mapping[str, Letter]) -> dict[str, Outcome]:
    """Message id -> outcome, of the messages that have been answered by now."""
    outcomes: dict[str, Outcome] = {}
    for reply in grid.pull_messages(list(asked)) if asked else ():
        name = reply.metadata.reply_to_message_id
        if name in asked:
            outcomes[name] = _read(reply, asked[name])
    return outcomes


def _read(reply: Message, letter: Letter) -> Outcome:
    if reply.has_error():
        return Outcome("error", why=_reason(reply), gone=reply.error.code == GONE)
    try:
        note = from_records(reply.content, letter.note.kind, letter.layout)
    except ForeignMessage as error:
        return Outcome("error", why=str(error), sent=True)
    if not all(
        np.isfinite(array).all() for array in note.arrays.values() if array.dtype.kind == "f"
    ):
        return Outcome("non-finite", note, "non-finite parameters", sent=True)
    return Outcome("ok", note, sent=True)


def _reason(reply: Message) -> str:
    """Flower's words for an error, in one line; ``<class 'X'>:<'text'>`` becomes ``X: text``."""
    code, text = reply.error.code, " ".join((reply.error.reason or "").split())
    raised = re.fullmatch(r"<class '(?:[\w.]*\.)?(\w+)'>:<'(.*)'>", text)
    if raised:
        return f"{raised[1]}: {raised[2]}"[:200]
    if code == GONE:
        return "the node has left"
    return f"Flower error {code}: {text}"[:200]
