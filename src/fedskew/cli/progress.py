"""What a person sees in the terminal while fedskew works, and the tables it prints at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from fedskew.accounting.traffic import total_bytes
from fedskew.types import RoundRecord

NO_ROOM = {
    "records",
    "counted for less",
    "last round",
    "best",
    "AD ± SDAD",
    "worst 10 %",
    "seconds",
    "MB to target",
    "simulated s to target",
    "Wh to target",
}
"""What the 80 columns of a table of several runs have no room for; all of it is in --json."""


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
            disable=quiet,
        )
        self._tasks: dict[int, TaskID] = {}
        self._titles, self._rounds = titles, rounds
        self._accuracy = [float("nan")] * len(titles)
        self._bytes = [0] * len(titles)

    def __enter__(self) -> RunProgress:
        self._progress.start()
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
            disable=quiet,
        )
        self._titles, self._rounds = [escape(title) for title in titles], rounds
        self._done: dict[int, int] = {}  # run -> rounds
        self._tasks: dict[int, TaskID] = {}

    def __enter__(self) -> ManyRuns:
        self._progress.start()
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

    def _facts(self) -> str:
        return (
            f"{sum(done >= self._rounds for done in self._done.values())}/{len(self._titles)} runs"
        )

    def advance(self, number: int, record: RoundRecord) -> None:
        """A round of run ``number`` has ended."""
        if number not in self._tasks:
            self._tasks[number] = self._progress.add_task(
                self._titles[number], total=self._rounds, facts=""
            )
        self._done[number] = record.round
        accuracy = record.client_accuracy if math.isnan(record.accuracy) else record.accuracy
        shown: dict[str, Any] = {}
        if not math.isnan(accuracy):
            shown["facts"] = f"accuracy {accuracy:.3f}"
        over = record.round >= self._rounds
        task = self._tasks[number]
        self._progress.update(task, completed=record.round, visible=not over, **shown)
        self._progress.update(self._all, completed=sum(self._done.values()), facts=self._facts())

    def refer(self, number: int, row: str) -> None:
        """A run has ended, and a reference row is computed from it."""
        self._done[number] = self._rounds
        if number not in self._tasks:
            self._tasks[number] = self._progress.add_task(
                self._titles[number], total=self._rounds, facts=""
            )
        self._progress.update(
            self._tasks[number], completed=self._rounds, visible=True, facts=f"reference {row}"
        )
        self._progress.update(self._all, completed=sum(self._done.values()), facts=self._facts())


def summary_table(summaries: Sequence[Mapping[str, Any]]) -> Table:
    """The results of one run, a fact per line, or of several, a run per line."""
    facts = [_facts(summary) for summary in summaries]
    if len(facts) == 1:
        table = Table(show_header=False, show_edge=False, pad_edge=False, box=None)
        for name, value in facts[0].items():
            table.add_row(name, value, style="bold" if name == "final accuracy" else None)
        return table
    table = Table(show_edge=False, pad_edge=False, box=None)
    shown = [name for name in facts[0] if name not in NO_ROOM]
    for name in shown:
        heading = name.removeprefix("final ").removeprefix("rounds ")
        table.add_column(
            heading,
            justify="left" if name == "recipe" else "right",
            overflow="fold",
            no_wrap=name != "recipe",
        )
    for row in facts:
        table.add_row(*(row[name] for name in shown))
    return table


def _facts(s: Mapping[str, Any]) -> dict[str, str]:
    return {
        "recipe": escape(s["name"]),
        "seed": str(s["seed"]),
        "final accuracy": _share(s["final_accuracy"]),
        "last round": _share(s["last_accuracy"]),
        "best": _share(s["best_accuracy"]),
        **_client_facts(s.get("client_accuracy")),
        "rounds": str(s["rounds"]),
        "MB down": f"{s['bytes_down'] / 1e6:.2f}",
        "MB up": f"{s['bytes_up'] / 1e6:.2f}",
        "seconds": f"{s['seconds']:.1f}",
        "sim. s": f"{s['simulated_seconds']:.1f}",
        "Wh": f"{s['wh']:.3f}",
        "failures": str(s["failures"]),
        "counted for less": str(s.get("notes", 0)),
        **(target_row(s["to_target"]) if "to_target" in s else {}),
        "records": escape(s["out"] or ""),
    }


def target_row(reached: Mapping[str, Any]) -> dict[str, str]:
    """What reaching a target took, from :meth:`ToTarget.as_dict`; ``-`` for a censored number."""

    def shown(key: str, scale: float, digits: int) -> str:
        return "-" if reached[key] is None else f"{reached[key] / scale:.{digits}f}"

    return {
        f"rounds to {reached['target']:g}": reached["text"],
        "MB to target": shown("bytes", 1e6, 2),
        "simulated s to target": shown("seconds", 1, 1),
        "Wh to target": shown("joules", 3600, 3),
    }


def _share(value: float | None) -> str:
    """A dash where there is no such figure: several models have no global accuracy."""
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"


def _client_facts(figures: Mapping[str, Any] | None) -> dict[str, str]:
    """What clients have of it on their own test sets."""
    if figures is None:
        return {"at clients": "-", "AD ± SDAD": "-", "worst 10 %": "-"}
    return {
        "at clients": _share(figures["weighted"]) + _of_clients(figures),
        "AD ± SDAD": f"{_share(figures['ad'])} ± {_share(figures['sdad'])}",
        "worst 10 %": _share(figures["worst10"]),
    }


def _of_clients(figures: Mapping[str, Any]) -> str:
    """How many clients a figure covers, where it is not all of them."""
    excluded = figures.get("excluded", 0)
    tested = figures.get("clients", 0)
    return f" ({tested} of {tested + excluded} clients)" if excluded else ""


@contextmanager
def fetch_progress(console: Console) -> Iterator[Callable[[int | None, int | None, str], None]]:
    """A download bar: call with (bytes done, bytes in total, what goes on); None = not known."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("looking", total=None)

        def update(done: int | None, total: int | None, text: str) -> None:
            progress.update(task, completed=done or 0, total=total, description=text)

        yield update
