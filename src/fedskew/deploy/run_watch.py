"""How far a run is, read from its folder while another process plays it.

Only what was appended to ``rounds.jsonl`` since the last look is read, and nothing is locked or
written: whoever plays the run does not notice. A resumed run replaces the file; then it is read
anew.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fedskew.foreign import read_toml
from fedskew.records import RECIPE, RESULT, ROUNDS, record_of
from fedskew.types import RoundRecord

# Reasons are words, some of them a client's own; these few stand for all of them, so that nobody
# can make a monitoring system keep a million time series.
KINDS = {
    "no_reply": re.compile(r"no reply within|missed the deadline|dropped out"),
    "left": re.compile(r"the node has left|is not connected"),
    "policy": re.compile(r"Refused: "),
    "no_label_counts": re.compile(r"gave no label counts"),
    "not_finite": re.compile(r"non-finite"),
    "out_of_bounds": re.compile(
        r".*(not within|too large|wrong shape| is no )|a negative |no parameters"
    ),
    "unreadable": re.compile(r"a reply that Flower cannot read|message"),
    "raised": re.compile(r"\w+: |Flower error |worker process died"),
}
OTHER = "other"
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def kind_of(why: str) -> str:
    """What sort of failure a reason is.

    >>> [kind_of(why) for why in ("no reply within 300 s", "RuntimeError: the disk is gone", "?")]
    ['no_reply', 'raised', 'other']
    """
    return next((kind for kind, words in KINDS.items() if words.match(why)), OTHER)


@dataclass
class Figures:
    """What the rounds of one run add up to so far."""

    round: int = -1  # the last one that has ended; -1: none
    accuracy: float = float("nan")  # the newest there is
    client_accuracy: float = float("nan")
    replies: int = 0
    failures: Counter[str] = field(default_factory=Counter)  # by kind
    bytes: Counter[str] = field(default_factory=Counter)  # by direction
    seconds: float = 0.0
    last_seconds: float = float("nan")
    simulated_seconds: float = 0.0

    def add(self, record: RoundRecord) -> None:
        """One more round."""
        self.round = record.round
        self.accuracy = _newer(record.accuracy, self.accuracy)
        self.client_accuracy = _newer(record.client_accuracy, self.client_accuracy)
        self.replies += len(record.loss)
        self.failures.update(kind_of(why) for why in record.failures.values())
        for transfer in record.transfers:
            self.bytes[transfer.direction] += transfer.bytes
        self.seconds += record.seconds
        self.last_seconds = record.seconds
        self.simulated_seconds += _newer(record.simulated_seconds, 0.0)


def _newer(value: float, before: float) -> float:
    return before if math.isnan(value) else value


class RunWatch:
    """One run folder, which may not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bytes_read = 0  # over all looks
        self._inode = 0
        self._forget()

    def _forget(self) -> None:
        self.figures, self.damaged, self._offset = Figures(), False, 0

    def look(self) -> Figures:
        """The figures now."""
        try:
            with open(self.folder / ROUNDS, "rb") as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._inode or found.st_size < self._offset:
                    self._forget()
                    self._inode = found.st_ino
                file.seek(self._offset)
                self._take(file.read())
        except OSError:
            self._forget()
        return self.figures

    def _take(self, new: bytes) -> None:
        """Whole lines; one that is being written waits for the next look."""
        self.bytes_read += len(new)
        try:
            for line in new.split(b"\n")[:-1]:
                self.figures.add(record_of(line.decode()))
                self._offset += len(line) + 1
        except DAMAGE:
            self.damaged = True

    @property
    def planned(self) -> int:
        """How many rounds the recipe wants; 0 = not known yet."""
        try:
            return int(read_toml(self.folder / RECIPE)["run"]["rounds"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0

    @property
    def finished(self) -> bool:
        """Whether its result is there."""
        return (self.folder / RESULT).is_file()

    @property
    def last_change(self) -> float:
        """When its last round was written, as seconds since 1970; 0 = never."""
        try:
            return (self.folder / ROUNDS).stat().st_mtime
        except OSError:
            return 0.0


def progress_text(folder: Path) -> str:
    """How far a run is, in a few words; "" if its folder has no rounds, or is elsewhere."""
    watch = RunWatch(folder)
    found = watch.look()
    if found.round < 0:
        return ""
    score = "" if math.isnan(found.accuracy) else f", accuracy {found.accuracy:.4f}"
    return f"round {found.round} of {watch.planned}{score}"


def find_runs(places: Iterable[Path]) -> list[Path]:
    """Run folders: those named, and those up to two folders below them. A place that does not exist
    yet is taken to be a run folder.
    """
    found: dict[Path, None] = {}
    for place in places:
        inside = [path.parent for depth in ("*", "*/*") for path in place.glob(f"{depth}/{ROUNDS}")]
        itself = [] if inside and not (place / ROUNDS).is_file() else [place]
        found |= dict.fromkeys([*itself, *sorted(inside)])
    return list(found)
