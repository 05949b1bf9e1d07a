"""What somebody who waits is told while cells are played."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fedskew.evidence.cells import Cell
from fedskew.evidence.forecast import Forecast
from fedskew.experiment.schedule import Outcome


@dataclass(frozen=True)
class Progress:
    """How far it is."""

    done: int
    cells: int
    title: str  # of the cell that has just ended, or gone on by a round
    seconds: float | None  # it took; None: it has not ended
    left: float | None  # until all are done


Watch = Callable[[Progress], None]
PAUSE_SECONDS = 0.2  # between two words on rounds: nobody reads faster


class Watcher:
    """Turns what processes say into :class:`Progress`."""

    def __init__(self, cells: Sequence[Cell], cores: int, watch: Watch | None) -> None:
        self._cells, self._cores, self._watch = cells, cores, watch
        self._forecast = Forecast.of(cells)
        self._told = -PAUSE_SECONDS

    def hear(self, number: int, kind: str, content: Any) -> None:
        """A round of a cell has ended, or a reference row of it is being computed."""
        if kind == "round":
            rounds = max(1, int(self._cells[number].recipe["run"]["rounds"]))
            self._forecast.shares[number] = content.round / rounds
        if time.monotonic() - self._told >= PAUSE_SECONDS:
            self._told = time.monotonic()
            self._tell(number, None)

    def end(self, number: int, outcome: Outcome) -> None:
        """A cell has ended."""
        seconds = float(outcome.summary["seconds"]) if outcome.summary else 0.0
        self._forecast.seconds[number] = seconds
        self._tell(number, seconds)

    def _tell(self, number: int, seconds: float | None) -> None:
        if self._watch is not None:
            done, left = len(self._forecast.seconds), self._forecast.remaining(self._cores)
            title = self._cells[number].title
            self._watch(Progress(done, len(self._cells), title, seconds, left))
