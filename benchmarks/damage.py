"""Damage to run folders, and whether anybody notices: flipped bits, cut files, blocks of zeros,
files that are gone, lines that are gone or come twice, files of another run.

A damage is *noticed* (an error of ours, or a word and the right result all the same), *harmless*
(nothing that anybody reads differs), or one of the two that must never be: *silent* (another result
without a word) and *traceback*.
"""

from __future__ import annotations

import json
import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedskew.errors import FedskewError, RunFolderWarning
from fedskew.experiment.run import Run
from fedskew.records import ROUNDS, labels_bytes, line_of

KINDS = ("flip", "cut", "zeros", "gone", "lines", "other")
OUTCOMES = ("noticed", "harmless", "silent", "traceback")
BLOCK = 64  # bytes of zeros
# what differs between two runs that are the same
WALL = {"run.json": ("started", "sum"), "result.json": ("seconds", "out", "sum")}


@dataclass(frozen=True)
class Damage:
    """What is done to which file."""

    kind: str
    file: str
    seed: int

    def apply(self, folder: Path, other: Path) -> None:
        """Do it; ``other`` is the folder of another run."""
        path, chance = folder / self.file, random.Random(self.seed)
        content = path.read_bytes()
        if self.kind == "gone":
            path.unlink()
        elif self.kind == "other" and (other / self.file).is_file():
            shutil.copy(other / self.file, path)
        elif self.kind == "lines":
            path.write_bytes(_other_lines(content, chance))
        elif self.kind == "cut":
            path.write_bytes(content[: chance.randrange(len(content))])
        elif self.kind == "zeros":
            at = chance.randrange(len(content))
            rest = content[at + BLOCK :]
            path.write_bytes(content[:at] + bytes(len(content) - at - len(rest)) + rest)
        else:
            path.write_bytes(_flipped(content, chance.randrange(8 * len(content))))


def _flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _other_lines(content: bytes, chance: random.Random) -> bytes:
    """A line is gone, comes twice, or has changed places with the next."""
    lines = content.splitlines(keepends=True)
    at, how = chance.randrange(len(lines)), chance.randrange(3)
    changed = [*lines[:at], *([lines[at]] * 2 if how == 1 else []), *lines[at + 1 :]]
    if how == 2 and len(lines) > 1:
        at = chance.randrange(len(lines) - 1)
        changed = [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
    return b"".join(changed)


def damages(folder: Path, count: int, chance: random.Random) -> list[Damage]:
    """This many, most of them flips and cuts, over all files of a folder."""
    files = sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
    chosen = []
    for _ in range(count):
        kind = chance.choices(KINDS, (60, 20, 5, 5, 5, 5))[0]
        # of a run that goes on only its rounds and checkpoints tell which run they are of
        bound = ROUNDS if kind == "lines" else chance.choice(files)
        chosen.append(Damage(kind, bound, chance.randrange(1 << 30)))
    return chosen


# ---------------------------------------------------------------- what anybody reads


def comparable(folder: Path) -> dict[str, Any]:
    """Every file of a run folder, without what may differ between two runs that are the same."""
    files: dict[str, Any] = {
        p.name: p.read_bytes() for p in sorted(folder.iterdir()) if not p.name.startswith(".")
    }
    lines = [json.loads(line) for line in files.pop(ROUNDS).splitlines()]
    files[ROUNDS] = [{k: v for k, v in line.items() if k != "times"} for line in lines]
    for name, names in WALL.items():
        content = json.loads(files[name])
        files[name] = {k: v for k, v in content.items() if k not in names}
    return files


def shown(folder: Path) -> dict[str, Any]:
    """Everything a reader gets from a run folder."""
    run = Run.read(folder)
    content: dict[str, Any] = {
        "recipe": run.recipe,
        "facts": run.facts,
        "rounds": [line_of(record) for record in run.rounds],
        "clients": run.clients,
        "labels": None if run.labels is None else labels_bytes(run.labels),
        "references": run.references,
    }
    if run.finished:
        summary = {k: repr(v) for k, v in run.summary().items() if k != "out"}
        content |= {"summary": summary, "models": run.models.tobytes()}
    return content


def same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether a reader is told the truth. Without its result a run counts as not finished, which
    is said; then the rounds are the first of them, and label counts may have to be dealt again.
    """
    known = len(after["rounds"])
    if "summary" not in after:
        before = {**before, "rounds": before["rounds"][:known]}
        before |= {"clients": after["clients"], "references": after["references"]}
    if after["labels"] is None:
        before = {**before, "labels": None}
    if not after["references"]:  # no file: compare computes them again
        before = {**before, "references": after["references"]}
    return {k: before.get(k) for k in after} == after


# ---------------------------------------------------------------- whether it is noticed


def outcome_of(
    damage: Damage, whole: Path, other: Path, place: Path, finish: Callable[[Path], object]
) -> str:
    """What comes of one damage to a copy of the folder ``whole``; ``finish`` resumes a run."""
    folder = place / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    damage.apply(folder, other)
    looked = _tried(lambda: same(shown(whole), shown(folder)))
    expected = place / f"{whole.name}-finished"
    if not expected.is_dir():
        shutil.copytree(whole, expected)
        finish(expected)
    gone_on = _tried(lambda: _finishes(folder, expected, finish))
    found = {looked, gone_on}
    return next(one for one in ("traceback", "silent", "noticed", "harmless") if one in found)


def _finishes(folder: Path, expected: Path, finish: Callable[[Path], object]) -> bool:
    """Whether a run, resumed, leaves what it would have left; a finished one is only read."""
    finished = (folder / "result.json").is_file()
    finish(folder)
    return finished or comparable(folder) == comparable(expected)


def _tried(look: Callable[[], bool]) -> str:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            right = look()
        except FedskewError:
            return "noticed"
        except Exception:
            return "traceback"
    word = any(issubclass(one.category, RunFolderWarning) for one in heard)
    return ("noticed" if word else "harmless") if right else "silent"
