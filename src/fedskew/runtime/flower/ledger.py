"""A node's own account of what it has given away: a file on its disk, over all runs and restarts.

One JSON object a line, the first says what the file is. A line is on disk before what it stands for
leaves this process, so a crash can waste privacy budget and never overdraw it. Processes of one
node take turns (a lock on the file). A file that is missing, or has a line that cannot be read,
stops every release: what was spent is then not known.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.runtime.flower.policy import Policy, Refused
from fedskew.types import Floats

FORMAT = "fedskew ledger/1"


def new_ledger(path: Path) -> Path:
    """An empty ledger; one that exists is kept."""
    head = json.dumps({"format": FORMAT, "made": _now()}) + "\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with open(descriptor, "w", encoding="utf8") as file:
        file.write(head)
    return path


@dataclass(frozen=True)
class Entry:
    """One line: counts released to a run, or the number of a training in it."""

    run: str
    epsilon: float = 0.0
    counts: tuple[float, ...] = ()
    trainings: int = 0


def release_once(
    policy: Policy, run: str, epsilon: float, client: int, draw: Callable[[], Floats]
) -> Floats:
    """Noised counts for a run: the same as before if it has had some, else new ones, if the budget
    allows.
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise Refused(f"client {client}", f"epsilon = {epsilon}", "Ask for a number above 0")
    with _opened(policy) as (file, entries):
        earlier = next((e for e in entries if e.run == run and e.counts), None)
        if earlier is not None:
            return np.array(earlier.counts)
        if math.fsum([*(e.epsilon for e in entries), epsilon]) > policy.epsilon:
            left = max(0.0, policy.epsilon - math.fsum(e.epsilon for e in entries))
            what = f"epsilon {epsilon:g} asked, {left:g} of {policy.epsilon:g} is left"
            raise Refused(f"client {client}", what, "Its policy gives no more")
        counts = draw()
        _append(file, {"run": run, "epsilon": epsilon, "counts": counts.tolist()})
        return counts


def count_training(policy: Policy, run: str, client: int) -> None:
    """One more training in a run, if its policy allows."""
    if not policy.max_rounds:
        return
    with _opened(policy) as (file, entries):
        before = max((e.trainings for e in entries if e.run == run), default=0)
        if before >= policy.max_rounds:
            what = f"has trained {before} times in this run, its policy allows {policy.max_rounds}"
            raise Refused(f"client {client}", what, "Lower run.rounds")
        _append(file, {"run": run, "trainings": before + 1})


def spent(path: Path) -> float:
    """Epsilon released so far."""
    return math.fsum(entry.epsilon for entry in _entries(path, path.read_text("utf8")))


# ---------------------------------------------------------------- the file


@contextlib.contextmanager
def _opened(policy: Policy) -> Iterator[tuple[TextIOWrapper, Sequence[Entry]]]:
    """The file, locked, and what stands in it."""
    path = policy.ledger
    if path is None:
        raise Refused("policy", "no ledger", "Name a file that keeps what was spent")
    try:
        # what is no text reads as characters that no JSON has
        file = open(path, "r+", encoding="utf8", errors="surrogateescape")  # noqa: SIM115
    except OSError as error:
        what = f"cannot be opened ({error.strerror}): what was spent is not known"
        raise Refused(f"ledger {path.name}", what, "Bring it back, nothing is released") from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed, or its process ends
        yield file, _entries(path, file.read())


def _entries(path: Path, text: str) -> Sequence[Entry]:
    lines = text.split("\n")
    try:
        if json.loads(lines[0])["format"] != FORMAT or lines[-1]:
            raise ValueError("its first line is another one's, or its last is torn")
        return [_entry(json.loads(line)) for line in lines[1:-1]]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        what = f"is damaged ({error}): what was spent is not known"
        raise Refused(
            f"ledger {path.name}", what, "Correct it by hand, nothing is released"
        ) from None


def _entry(raw: Mapping[str, Any]) -> Entry:
    entry = Entry(
        str(raw["run"]),
        float(raw.get("epsilon", 0.0)),
        tuple(float(count) for count in raw.get("counts", ())),
        int(raw.get("trainings", 0)),
    )
    whole = math.isfinite(entry.epsilon) and entry.epsilon >= 0 <= entry.trainings
    if not whole or bool(entry.epsilon) != bool(entry.counts):
        raise ValueError(f"a line for run {entry.run} makes no sense")
    return entry


def _append(file: TextIOWrapper, line: Mapping[str, Any]) -> None:
    """On disk when this returns; on a full disk the file is as before."""
    end = file.seek(0, os.SEEK_END)
    try:
        file.write(json.dumps({**line, "at": _now()}) + "\n")
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        os.ftruncate(file.fileno(), end)
        what = f"cannot be written ({error.strerror})"
        raise Refused(f"ledger {Path(file.name).name}", what, "Nothing is released") from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
