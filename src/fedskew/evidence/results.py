"""The results file of a study: every cell's numbers, who made them, and of what code.

Pages, tables and figures are written from it and from nothing else.
"""

from __future__ import annotations

import json
import math
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from fedskew.errors import StudyError
from fedskew.evidence.cells import Cell, Labels, identity_of
from fedskew.evidence.code import Parts, fingerprint_of, parts_of, roots_of
from fedskew.evidence.rows import Row
from fedskew.records import machine_facts, no_nan, write_atomically

FILE = "results.json"
FORMAT = 1


@dataclass(frozen=True)
class Finished:
    """One cell that was played."""

    labels: Labels
    seed: int
    rows: Sequence[Row]
    maker: int  # number of its maker
    fingerprint: str | None  # of what was played; None: not known
    code: str | None  # of what it was played with; None: not known
    cpu_seconds: float | None
    data: str = ""  # digest of data that only the user has

    @property
    def identity(self) -> tuple[tuple[tuple[str, str], ...], int]:
        """Where it stands in its study."""
        return identity_of(self.labels, self.seed)


@dataclass(frozen=True)
class Results:
    """All cells of a study that were played, in the order of the study."""

    study: str
    scale: str
    makers: Sequence[Mapping[str, Any]]
    cells: Sequence[Finished]
    code: Mapping[str, Parts] = field(default_factory=dict)  # fingerprint -> what it is made of

    @property
    def cpu_seconds(self) -> float:
        """Of all cells; nan if one of them does not say."""
        return sum(math.nan if c.cpu_seconds is None else c.cpu_seconds for c in self.cells)


@dataclass(frozen=True)
class State:
    """Cells of a study beside its results."""

    current: Sequence[Cell]
    older: Sequence[Cell]  # something that decides their numbers has changed since
    missing: Sequence[Cell]
    changed: Sequence[str] = ()  # what

    @property
    def is_current(self) -> bool:
        """Whether nothing has to be made."""
        return not self.older and not self.missing


def state_of(cells: Sequence[Cell], results: Results | None) -> State:
    """Which cells are up to date, which are older than what decides their numbers, which are not
    there.
    """
    known = {done.identity: done for done in results.cells} if results else {}
    current, older, missing = [], [], []
    changed: set[str] = set()
    digests = cache(parts_of)  # no file changes meanwhile
    for cell in cells:
        done, parts = known.get(cell.identity), digests(roots_of(cell))
        if done is None or cell.waits:
            missing.append(cell)
        elif is_current(cell, done, parts):
            current.append(cell)
        else:
            older.append(cell)
            changed |= set(_changes(cell, done, parts, results.code if results else {}))
    return State(current, older, missing, sorted(changed))


def is_current(cell: Cell, done: Finished, parts: Parts) -> bool:
    """Whether a cell would give these numbers again, as far as one can tell without playing it."""
    return done.fingerprint == cell.fingerprint and done.code == fingerprint_of(parts)


def joined(new: Results, old: Results | None) -> Results:
    """All cells of both; where both have one, the new one."""
    if old is None:
        return new
    fresh = {cell.identity for cell in new.cells}
    kept = [
        replace(cell, maker=cell.maker + len(new.makers))
        for cell in old.cells
        if cell.identity not in fresh
    ]
    makers, code = [*new.makers, *old.makers], {**old.code, **new.code}
    return replace(new, makers=makers, cells=[*new.cells, *kept], code=code)


def _changes(cell: Cell, done: Finished, now: Parts, code: Mapping[str, Parts]) -> Iterable[str]:
    if done.fingerprint is None or done.code is None:
        return []  # made before this was recorded
    then = code.get(done.code, {})
    rooms = [room for room in {**then, **now} if then.get(room) != now.get(room)]
    return rooms + (["recipe"] if done.fingerprint != cell.fingerprint else [])


def maker_facts() -> dict[str, Any]:
    """Version, commit and machine, asked once before anything is played."""
    facts = machine_facts()
    return {
        "version": facts["fedskew"],
        "commit": facts["commit"][:12] + _dirt(),
        "date": datetime.now(UTC).date().isoformat(),
        "python": facts["python"],
        **facts["versions"],
        "machine": _processor() or facts["machine"],
        "cores": facts["cores"],
    }


def _dirt() -> str:
    """Whether the source differs from its commit."""
    folder = str(Path(__file__).resolve().parent)
    try:
        done = subprocess.run(
            ["git", "-C", folder, "status", "--short", "--", ".."],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return " with changes" if done.stdout.strip() else ""


def _processor() -> str:
    """The name of the processor, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


# ---------------------------------------------------------------- on disk


def read_results(path: Path) -> Results | None:
    """The results in a file; None if there is no such file."""
    try:
        raw = json.loads(path.read_text(encoding="utf8"))
        if raw["format"] != FORMAT:
            raise StudyError(
                str(path), f"has format {raw['format']}, not {FORMAT}", "Make the study again"
            )
        cells = [Finished(**{**cell, "rows": tuple(cell["rows"])}) for cell in raw["cells"]]
        return Results(raw["study"], raw["scale"], raw["makers"], cells, raw["code"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyError(str(path), f"cannot be read ({error!r})", "Make the study again") from None


def write_results(path: Path, results: Results) -> None:
    """A line per maker and per cell, so that two versions can be compared by eye."""
    head = {"format": FORMAT, "study": results.study, "scale": results.scale}
    lines = [f"{_text(key)}: {_text(value)}" for key, value in head.items()]
    lines += [f'"code": {_table(results.code)}', f'"makers": {_list(results.makers)}']
    lines.append(f'"cells": {_list(_plain(cell) for cell in results.cells)}')
    write_atomically(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def _plain(cell: Finished) -> dict[str, Any]:
    fields = ("labels", "seed", "fingerprint", "code", "maker", "cpu_seconds", "data", "rows")
    return {name: getattr(cell, name) for name in fields if getattr(cell, name) != ""}


def _text(value: Any) -> str:
    return json.dumps(no_nan(value), ensure_ascii=False)


def _list(items: Iterable[Any]) -> str:
    return "[\n" + ",\n".join(_text(item) for item in items) + "\n]"


def _table(items: Mapping[str, Any]) -> str:
    return "{\n" + ",\n".join(f"{_text(k)}: {_text(v)}" for k, v in items.items()) + "\n}"
