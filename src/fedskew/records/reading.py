"""A run folder as a whole, finished or not: its files are checked, and against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedskew.errors import RunFolderError
from fedskew.records.checkpoints import CHECKPOINT, check_against_checkpoint, lines_saved
from fedskew.records.files import AGAIN, REFINISH, disk_errors, read_json
from fedskew.records.labels import LABELS, Labels, read_labels
from fedskew.records.references import read_references
from fedskew.records.rounds import ROUNDS, Lines, read_lines
from fedskew.records.sums import NOT_WHOLE, checksum
from fedskew.records.tensors import read_saved
from fedskew.types import RoundRecord, State

RECIPE, RUN = "recipe.toml", "run.json"
FINAL, CLIENTS, RESULT = "final.safetensors", "clients.json", "result.json"
UNCHECKED = "written before run folders had checksums: damage in it may go unnoticed"
PENDING = "pending"  # entry of a result.json that is to be written once more: what is missing
CHECKSUMS, RECIPE_SUM, SUMS = "checksums", "recipe_sum", "sums"  # entries of run.json, result.json


@dataclass(frozen=True)
class Contents:
    """What a run folder holds, the models left aside."""

    facts: Mapping[str, Any]
    rounds: Sequence[RoundRecord]
    result: Mapping[str, Any]  # empty while the run goes on
    clients: Mapping[str, Any]
    labels: Labels | None
    references: Mapping[str, Mapping[str, Any]]
    finished: bool
    checked: bool  # False: written before run folders had checksums


def read_folder(folder: Path) -> Contents:
    """Everything in a run folder; damage is an error, a half-written last record is not."""
    if not (folder / RUN).is_file() or not (folder / RECIPE).is_file():
        raise RunFolderError(
            str(folder), "is not a run folder", "Give the folder that fedskew run wrote"
        )
    facts = read_facts(folder)
    finished = (folder / RESULT).is_file()
    saved = None if finished else lines_saved(folder)
    lines = read_lines(folder, mark_of(facts), sealed=is_sealed(facts)).check()
    check_against_checkpoint(folder, saved, lines)
    result = _read_result(folder, facts, lines) if finished else {}
    sums = result.get(SUMS, {})
    return Contents(
        facts=facts,
        rounds=lines.records,
        result=result,
        clients=_read_clients(folder, finished, sums.get(CLIENTS)),
        labels=read_labels(folder, mark_of(facts), expected=sums.get(LABELS)),
        references=read_references(folder, mark_of(facts)) if finished else {},
        finished=finished,
        checked=is_sealed(facts),
    )


def read_rounds(folder: Path) -> list[RoundRecord]:
    """All whole records of a run folder; a half-written last line, left by a kill, is skipped."""
    facts = read_json(folder / RUN) if (folder / RUN).is_file() else {}
    return list(read_lines(folder, mark_of(facts), sealed=is_sealed(facts)).check().records)


def read_state(folder: Path) -> State:
    """Where a run folder's checkpoint stands; what the server knew of its clients is in it."""
    facts = read_facts(folder)
    return read_saved(folder / CHECKPOINT, mark_of(facts), sealed=is_sealed(facts)).state


def read_facts(folder: Path) -> dict[str, Any]:
    """What ``run.json`` says, and that the recipe beside it is the one it was written with."""
    facts = read_json(folder / RUN)
    with disk_errors(folder / RECIPE):
        recipe = (folder / RECIPE).read_bytes()
    if is_sealed(facts) and facts.get(RECIPE_SUM) != checksum(recipe):
        remedy = "Run the same recipe with --resume: it is written again"
        raise RunFolderError(str(folder / RECIPE), NOT_WHOLE, remedy)
    return facts


def mark_of(facts: Mapping[str, Any]) -> str:
    """Which recipe and seed a folder belongs to."""
    return str(facts.get("mark", ""))


def is_sealed(facts: Mapping[str, Any]) -> bool:
    """Whether the files of a folder have checksums."""
    return CHECKSUMS in facts


def is_pending(folder: Path) -> bool:
    """Whether model and result are there, but the clients were still to be tested."""
    try:
        return PENDING in read_json(folder / RESULT)
    except RunFolderError:  # whoever reads the folder is told
        return False


def _read_result(folder: Path, facts: Mapping[str, Any], lines: Lines) -> dict[str, Any]:
    """The summary, if the records are those it was computed from."""
    if not lines.records:
        raise RunFolderError(str(folder), "is finished but has no rounds", AGAIN)
    remedy = "Remove this file, then use --resume: only the end is done again"
    result = read_json(folder / RESULT, remedy=remedy)
    if is_sealed(facts) and SUMS not in result:
        raise RunFolderError(str(folder / RESULT), NOT_WHOLE, remedy)
    found, last = len(lines.records), lines.records[-1].round
    count, chain = result.get(SUMS, {}).get(ROUNDS, (result.get("rounds", last) + 1, None))
    if count != found:
        what = f"holds {found} records, the finished run left {count}"
        raise RunFolderError(str(folder / ROUNDS), what, AGAIN)
    if chain not in (None, lines.chains[-1]):
        raise RunFolderError(str(folder / ROUNDS), "is not what the result was made of", AGAIN)
    return result


def _read_clients(folder: Path, finished: bool, expected: str | None) -> dict[str, Any]:
    if not finished:
        return {}
    return read_json(folder / CLIENTS, expected=expected, remedy=REFINISH)
