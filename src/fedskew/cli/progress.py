"""What a person sees while fedskew works: bars in a terminal, and elsewhere (a log file, a pipe, a
job on a cluster) one plain line on standard error every ten seconds.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from fedskew.accounting.traffic import total_bytes
from fedskew.foreign import printable
from fedskew.types import RoundRecord

EVERY_SECONDS = 10.0  # between two plain lines


class PlainLines:
    """Says how far the work is, every ten seconds, also while nothing new is known."""

    def __init__(self, console: Console, text: str, *, quiet: bool = False) -> None:
        self.text = text
        self._console, self._silent = console, quiet or console.is_terminal
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._speak, daemon=True)

    def __enter__(self) -> PlainLines:
        self._began = time.monotonic()
        if not self._silent:
            self._thread.start()
        return self

    def __exit__(self, *trouble: object) -> None:
        self._over.set()
        if not self._silent:
            self._thread.join()

    def _speak(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            self.say()

    def say(self) -> None:
        """The line for now."""
        if not self._silent:
            seconds = time.monotonic() - self._began
            line = Text(f"{seconds:.0f} s: {self.text}")
            self._console.print(line, highlight=False, soft_wrap=True)


class RunProgress:
    """One line per run: rounds, accuracy, megabytes, time left."""

    def __init__(
        self, titles: Sequence[str], rounds: int, console: Console, *, quiet: bool = False
    ) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._plain = PlainLines(console, "starting", quiet=quiet)
        self._tasks: dict[int, TaskID] = {}
        self._titles, self._rounds = [escape(title) for title in titles], rounds
        self._names = titles
        self._accuracy = [float("nan")] * len(titles)
        self._bytes = [0] * len(titles)
        self._done: dict[int, int] = {}  # run -> rounds

    def __enter__(self) -> RunProgress:
        self._progress.start()
        self._plain.__enter__()
        if len(self._titles) == 1:
            self._task(0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
        self._plain.__exit__(kind, error, trace)
        if self._done and kind is None:
            self._plain.say()

    def _task(self, number: int) -> TaskID:
        if number not in self._tasks:
            self._tasks[number] = self._progress.add_task(
                self._titles[number], total=self._rounds, facts="starting"
            )
        return self._tasks[number]

    def advance(self, number: int, record: RoundRecord) -> None:
        """A round of run ``number`` has ended."""
        measured = record.client_accuracy if math.isnan(record.accuracy) else record.accuracy
        if not math.isnan(measured):
            self._accuracy[number] = measured
        self._bytes[number] += sum(
            total_bytes(record.transfers, way) for way in ("down", "up", "d2d")
        )
        facts = f"accuracy {self._accuracy[number]:.3f}  {self._bytes[number] / 1e6:.1f} MB"
        self._progress.update(self._task(number), completed=record.round, facts=facts)
        self._done[number] = record.round
        over = sum(done >= self._rounds for done in self._done.values())
        runs = f", {over} of {len(self._names)} runs done" if len(self._names) > 1 else ""
        self._plain.text = (
            f"{self._names[number]}: round {record.round} of {self._rounds}, {facts}{runs}"
        )


class ManyRuns:
    """Many runs at once: one bar for all with the time left, and a line for each running now."""

    def __init__(
        self, titles: Sequence[str], rounds: int, console: Console, *, quiet: bool = False
    ) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
        )
        self._progress = Progress(
            *columns,
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._plain = PlainLines(console, "starting", quiet=quiet)
        self._titles, self._rounds = [escape(title) for title in titles], rounds
        self._done: dict[int, int] = {}  # run -> rounds
        self._tasks: dict[int, TaskID] = {}

    def __enter__(self) -> ManyRuns:
        self._progress.start()
        self._plain.__enter__()
        self._all = self._progress.add_task(
            "all rounds", total=len(self._titles) * self._rounds, facts=self._facts()
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
        self._plain.__exit__(kind, error, trace)
        if self._done and kind is None:
            self._plain.say()

    def _facts(self) -> str:
        return (
            f"{sum(done >= self._rounds for done in self._done.values())}/{len(self._titles)} runs"
        )

    def _task(self, number: int) -> TaskID:
        if number not in self._tasks:
            self._tasks[number] = self._progress.add_task(
                self._titles[number], total=self._rounds, facts=""
            )
        return self._tasks[number]

    def advance(self, number: int, record: RoundRecord) -> None:
        """A round of run ``number`` has ended."""
        task = self._task(number)
        self._done[number] = record.round
        accuracy = record.client_accuracy if math.isnan(record.accuracy) else record.accuracy
        shown: dict[str, Any] = {}
        if not math.isnan(accuracy):
            shown["facts"] = f"accuracy {accuracy:.3f}"
        over = record.round >= self._rounds
        self._progress.update(task, completed=record.round, visible=not over, **shown)
        self._tell()

    def refer(self, number: int, row: str) -> None:
        """A run has ended, and a reference row is computed from it."""
        self._done[number] = self._rounds
        self._progress.update(
            self._task(number), completed=self._rounds, visible=True, facts=f"reference {row}"
        )
        self._tell()

    def _tell(self) -> None:
        done, total = sum(self._done.values()), len(self._titles) * self._rounds
        self._progress.update(self._all, completed=done, facts=self._facts())
        self._plain.text = f"{done} of {total} rounds, {self._facts()}"


@contextmanager
def fetch_progress(
    console: Console, *, quiet: bool = False
) -> Iterator[Callable[[int | None, int | None, str], None]]:
    """A download bar: call with (bytes done, bytes in total, what goes on); None = not known."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    hidden = quiet or not console.is_terminal
    with (
        Progress(*columns, console=console, transient=True, disable=hidden) as progress,
        PlainLines(console, "looking", quiet=quiet) as plain,
    ):
        task = progress.add_task("looking", total=None)

        def update(done: int | None, total: int | None, text: str) -> None:
            progress.update(task, completed=done or 0, total=total, description=text)
            size = f", {(done or 0) / 1e6:.1f} of {total / 1e6:.1f} MB" if total else ""
            plain.text = f"{text}{size}"

        yield update


@contextmanager
def steps(total: int, console: Console, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A bar on standard error that every call moves on to the next step; gone at the end."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    hidden = quiet or not console.is_terminal
    with (
        Progress(*columns, console=console, transient=True, disable=hidden) as progress,
        PlainLines(console, "starting", quiet=quiet) as plain,
    ):
        task = progress.add_task("", total=total, completed=-1)
        number = 0

        def step(text: str) -> None:
            nonlocal number
            number += 1
            progress.update(task, advance=1, description=printable(text, 60))
            plain.text = f"step {number} of {total}, {printable(text, 60)}"

        yield step
