"""The two newest checkpoints of a run: where one is damaged, the run goes on from the other."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

from safetensors import safe_open

from fedskew.errors import RunFolderError, RunFolderWarning
from fedskew.records.files import AGAIN, disk_errors, write_atomically
from fedskew.records.rounds import ROUNDS, Lines
from fedskew.records.tensors import UNREADABLE, Saved, check_whole, checkpoint_bytes, read_saved
from fedskew.types import State

CHECKPOINT, PREVIOUS = "checkpoint.safetensors", "checkpoint.previous.safetensors"


def write_checkpoint(folder: Path, state: State, mark: str, chains: list[str]) -> None:
    """Replace the older of the two; ``chains`` as in :class:`Lines`, at least up to this round."""
    written = chains[: state.round + 2]
    content = checkpoint_bytes(state, mark, (len(written) - 1, written[-1]))
    write_atomically(folder / CHECKPOINT, content, previous=folder / PREVIOUS)


def newest_state(folder: Path, mark: str, lines: Lines, *, sealed: bool) -> State | None:
    """The newest state that is whole and fits the lines; None if the run had not come to one.

    If it is the older one, it takes the place of the newer one, with a word.
    """
    problems = []
    for name in (CHECKPOINT, PREVIOUS):
        if not (folder / name).is_file():
            continue
        try:
            saved = read_saved(folder / name, mark, sealed=sealed)
            _check_fits(folder, lines, saved)
        except RunFolderError as error:
            problems.append(error)
            continue
        if name == PREVIOUS:
            _fall_back(folder, saved, problems)
        return saved.state
    if problems:
        raise problems[0]
    if len(lines.raw) > 1 or lines.damage is not None:
        what = f"is gone, and {ROUNDS} holds rounds that came after it"
        raise RunFolderError(str(folder / CHECKPOINT), what, AGAIN)
    return None


def _check_fits(folder: Path, lines: Lines, saved: Saved) -> None:
    if len(lines.raw) < saved.lines:
        lines.check()
        what = f"holds {len(lines.raw)} rounds, the checkpoint {saved.lines}"
        raise RunFolderError(str(folder / ROUNDS), what, AGAIN)
    if saved.chain not in (None, lines.chains[saved.lines]):
        what = "does not hold the rounds that led to the checkpoint"
        raise RunFolderError(str(folder / ROUNDS), what, AGAIN)


def _fall_back(folder: Path, saved: Saved, problems: list[RunFolderError]) -> None:
    why = f"{problems[0].where}: {problems[0].what}" if problems else f"{CHECKPOINT} is missing"
    with disk_errors(folder / CHECKPOINT):
        os.replace(folder / PREVIOUS, folder / CHECKPOINT)
    text = f"{why}. Going on from the checkpoint before it, round {saved.state.round}."
    warnings.warn(RunFolderWarning(text), stacklevel=2)


def check_against_checkpoint(folder: Path, before: list[object] | None, lines: Lines) -> None:
    """Refuse lines that are not those that ``before`` (of :func:`lines_saved`) tells of."""
    if before is None:
        return
    count, chain = before
    fits = isinstance(count, int) and lines.chains[count : count + 1] == [chain]
    if fits:
        return
    try:
        check_whole(folder / CHECKPOINT, sealed=True)
    except UNREADABLE:
        return  # the checkpoint is damaged, not the lines: --resume says so
    what = f"holds {len(lines.raw)} rounds, not the {count} that led to the checkpoint"
    raise RunFolderError(str(folder / ROUNDS), what, AGAIN)


def lines_saved(folder: Path) -> list[object] | None:
    """How many lines the newest checkpoint was written after, and their chain; None: not known.

    Only its header is read. Ask before reading the lines: a run may be going on.
    """
    try:
        with safe_open(str(folder / CHECKPOINT), "np") as file:
            count, chain = json.loads(file.metadata()["fedskew"])["records"]
    except UNREADABLE:
        return None
    return [count, chain]
