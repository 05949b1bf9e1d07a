"""Several runs at once: when runs are queued (seeds, sweeps) each core takes whole runs, instead of
all cores sharing each one.

The child processes stay alive from run to run, because starting torch costs more than many a small
run.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from fedskew.errors import FedskewError, RunError, plain_warnings
from fedskew.experiment.local import run_resolved
from fedskew.experiment.references import with_references
from fedskew.runtime.local.nursery import start_child
from fedskew.runtime.local.tasks import can_share, first_line
from fedskew.types import RoundRecord

Send = Callable[[str, Any], None]  # ("round", a RoundRecord) or ("row", a reference row's name)


class Work(Protocol):
    """What a child process can be given: it plays it, and sends on what happens meanwhile."""

    @property
    def out(self) -> str:
        """The folder it writes to."""
        ...

    def play(self, send: Send) -> Mapping[str, Any]:
        """Do it; what is left to say at the end, in a few numbers."""
        ...


@dataclass(frozen=True)
class Job:
    """One run: a resolved recipe, a seed and a folder."""

    recipe: Mapping[str, Any]
    seed: int
    out: str
    resume: bool = False
    references: bool = False  # then also the rows its personalised rivals are shown with
    target: float | None = None  # then its summary also says what reaching this accuracy took

    def play(self, send: Send) -> Mapping[str, Any]:
        """The run's summary."""
        result = run_resolved(
            self.recipe,
            seed=self.seed,
            workers=1,
            out=self.out,
            resume=self.resume,
            on_round=lambda record: send("round", record),
        )
        if self.references:
            with_references(result, on_row=lambda name: send("row", name))
        return result.summary(self.target)


@dataclass(frozen=True)
class Outcome:
    """How a job ended: its summary, or why it failed."""

    job: Work
    summary: Mapping[str, Any] | None
    error: str = ""


Progress = Callable[[int, RoundRecord], None]  # job number, round
OnRow = Callable[[int, str], None]  # job number, the reference row that is being computed
OnEnd = Callable[[int, Outcome], None]  # job number, how it ended


class _Child:
    def __init__(self) -> None:
        self.pipe, theirs = Pipe()
        self.job: int | None = None
        self._process = start_child("fedskew.experiment.schedule", theirs.fileno())
        theirs.close()

    def give(self, number: int, job: Work) -> None:
        self.job = number
        self.pipe.send(job)

    def close(self) -> None:
        self.pipe.close()
        self._process.terminate()
        self._process.wait()


def run_all(
    jobs: Sequence[Work],
    cores: int,
    on_round: Progress | None = None,
    on_row: OnRow | None = None,
    on_end: OnEnd | None = None,
    enough: Callable[[], bool] = lambda: False,
) -> list[Outcome]:
    """Run every job, ``cores`` at a time. A job that fails does not stop the others.

    ``enough()`` is asked when a job has ended: once it is true no other begins, and those that did
    not have no outcome.
    """
    if not can_share():
        return _one_by_one(jobs, on_round, on_row, on_end, enough)
    outcomes: dict[int, Outcome] = {}
    waiting = list(range(len(jobs)))
    children = [_Child() for _ in range(min(cores, len(jobs)))]
    try:
        for child in children:
            number = waiting.pop(0)
            child.give(number, jobs[number])
        while busy := {child.pipe: child for child in children if child.job is not None}:
            for pipe in wait(list(busy)):
                child = busy[pipe]  # type: ignore[index]
                outcome = _listen(child, jobs, on_round, on_row)
                if outcome is None:
                    continue
                ended = child.job
                assert ended is not None
                outcomes[ended] = outcome
                if on_end is not None:
                    on_end(ended, outcome)
                child.job = None
                if waiting and not enough():
                    number = waiting.pop(0)
                    child.give(number, jobs[number])
    finally:
        for child in children:
            child.close()
    return [outcomes[i] for i in sorted(outcomes)]


def _one_by_one(
    jobs: Sequence[Work],
    on_round: Progress | None,
    on_row: OnRow | None,
    on_end: OnEnd | None,
    enough: Callable[[], bool],
) -> list[Outcome]:
    """In this process, where a child cannot be handed anything."""
    outcomes = []
    for number, job in enumerate(jobs):
        if number and enough():
            break

        def send(kind: str, content: Any, number: int = number) -> None:
            hear = on_round if kind == "round" else on_row
            if hear is not None:
                hear(number, content)

        kind, content = _played(job, send)
        outcome = Outcome(job, content) if kind == "done" else Outcome(job, None, content)
        outcomes.append(outcome)
        if on_end is not None:
            on_end(number, outcome)
    return outcomes


def _listen(
    child: _Child, jobs: Sequence[Work], on_round: Progress | None, on_row: OnRow | None
) -> Outcome | None:
    """Take one message of a child; the outcome if its job has ended."""
    number = child.job
    if number is None:
        raise RunError("schedule", "a message from an idle process", "Report this")
    try:
        kind, content = child.pipe.recv()
    except (EOFError, OSError):
        child.close()
        raise RunError(
            jobs[number].out, "the process of this run died", "Check memory, then use --resume"
        ) from None
    if kind == "round":
        if on_round is not None:
            on_round(number, content)
        return None
    if kind == "row":
        if on_row is not None:
            on_row(number, content)
        return None
    return (
        Outcome(jobs[number], content) if kind == "done" else Outcome(jobs[number], None, content)
    )


def _serve(pipe: Connection) -> None:
    while True:
        job: Work = pipe.recv()
        pipe.send(_played(job, lambda kind, content: pipe.send((kind, content))))


def _played(job: Work, send: Send) -> tuple[str, Any]:
    """("done", the job's summary), or ("error", why there is none)."""
    try:
        return "done", job.play(send)
    except FedskewError as error:
        return "error", str(error)
    except Exception as error:  # somebody's rule or model: the other runs go on
        return "error", f"{job.out}: {first_line(error)}"


def main() -> None:
    """Entry point of a child process: the descriptor of its pipe is the only argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    plain_warnings()
    # the parent is done with us, or gone
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
