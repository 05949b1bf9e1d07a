"""One batch of messages out, exactly one outcome for each: ok, error or timeout.

Replies are matched by the id of the message they answer: the error that Flower makes up for a dead
node carries the SuperLink's number as its sender. ``send_and_receive`` would do, but it looks for
replies only every 3 seconds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedskew.runtime.border import shown
from fedskew.runtime.flower.records import ForeignMessage, Note, from_records, to_records
from fedskew.runtime.flower.undocumented import GONE, RAISED

AT_ONCE = 64  # messages in one request; a request has a size limit
# the longer replies take, the less often the SuperLink is asked: at most this share of the time is
# lost
PATIENT = 0.05
# errors of these packages are about the way to the SuperLink, not about what somebody sent
CONNECTION = {"httpx", "httpcore", "grpc"}
MARGIN_SECONDS = 5.0  # a message outlives its deadline by this much, then the SuperLink forgets it


@dataclass(frozen=True)
class Letter:
    """One message to one node."""

    node: int
    kind: str  # Flower's message type: train, evaluate, query.hello ...
    note: Note
    layout: str = ""  # the reply must be for a model of this layout

    def records(self) -> RecordDict:
        """What travels."""
        return to_records(self.note)

    def read(self, records: RecordDict) -> Note:
        """What a reply says; ForeignMessage if it is none to this letter."""
        return from_records(records, self.note.kind, self.layout)


@dataclass(frozen=True)
class Outcome:
    """What became of one letter."""

    status: Literal["ok", "error", "timeout"]
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
    one_by_one = False
    while places:
        asked = {name: letters[i] for name, i in places.items()}
        try:
            found = fetch(grid, asked, one_by_one=one_by_one)
        except UnreadableReply:
            places, found, one_by_one = (
                _ask_again(grid, letters, places, deadline_seconds),
                {},
                True,
            )
            began = time.monotonic()
            until = began + deadline_seconds
        for name, outcome in found.items():
            outcomes[places.pop(name)] = outcome
        now = time.monotonic()
        if not places or now >= until:
            break
        time.sleep(min(max(poll_seconds, PATIENT * (now - began)), until - now))
    return [outcomes.get(place, late(deadline_seconds)) for place in range(len(letters))]


def _ask_again(
    grid: Grid, letters: Sequence[Letter], places: Mapping[str, int], deadline_seconds: float
) -> dict[str, int]:
    """Ask those again who have not been heard: their replies went with an unreadable one."""
    waiting = list(places.values())
    again, _ = post(grid, [letters[place] for place in waiting], deadline_seconds)
    return {name: waiting[number] for name, number in again.items()}


def late(seconds: float) -> Outcome:
    """No reply in time."""
    return Outcome("timeout", why=f"no reply within {seconds:g} s")


def post(
    grid: Grid, letters: Sequence[Letter], deadline_seconds: float
) -> tuple[dict[str, int], dict[int, Outcome]]:
    """(message id -> place of what is under way, place -> outcome of what could not be sent)."""
    ttl = deadline_seconds + MARGIN_SECONDS
    messages = [Message(letter.records(), letter.node, letter.kind, ttl=ttl) for letter in letters]
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


class UnreadableReply(Exception):
    """Flower itself cannot read one of the replies, and has dropped those that came with it."""


def fetch(
    grid: Grid, asked: Mapping[str, Letter], *, one_by_one: bool = False
) -> dict[str, Outcome]:
    """Message id -> outcome, of the messages that have been answered by now. ``one_by_one``: with
    a request for each, so that one that Flower cannot read takes no other with it.
    """
    outcomes: dict[str, Outcome] = {}
    for names in [[name] for name in asked] if one_by_one else [list(asked)]:
        try:
            replies = _pull(grid, names)
        except UnreadableReply as error:
            if not one_by_one:
                raise
            outcomes[names[0]] = Outcome("error", why=str(error), sent=True)
            continue
        for reply in replies:
            name = reply.metadata.reply_to_message_id
            if name in asked:
                outcomes[name] = _read(reply, asked[name])
    return outcomes


def _pull(grid: Grid, names: list[str]) -> list[Message]:
    try:
        return list(grid.pull_messages(names)) if names else []
    except OSError:
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] in CONNECTION:
            raise
        why = f"a reply that Flower cannot read ({type(error).__name__})"
        raise UnreadableReply(why) from error


def _read(reply: Message, letter: Letter) -> Outcome:
    if reply.has_error():
        return Outcome("error", why=_reason(reply), gone=reply.error.code == GONE)
    try:
        note = letter.read(reply.content)
    except ForeignMessage as error:
        return Outcome("error", why=str(error), sent=True)
    return Outcome("ok", note, sent=True)


def _reason(reply: Message) -> str:
    """Flower's words for an error, in one line; ``<class 'X'>:<'text'>`` becomes ``X: text``."""
    code, text = reply.error.code, shown(reply.error.reason or "")
    raised = RAISED.fullmatch(text)
    if raised:
        return f"{raised[1]}: {raised[2]}"
    if code == GONE:
        return "the node has left"
    return f"Flower error {shown(code)}: {text}"
