"""From what came back to what the loop wants. A reply is checked here: a broken or hostile
client must not end the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedskew.runtime.flower.exchange import Outcome
from fedskew.runtime.flower.records import ForeignMessage, Note
from fedskew.runtime.replies import Reply
from fedskew.types import Floats, Ids, Ints, Scores

DAMAGED = (KeyError, TypeError, ValueError, OverflowError, IndexError)


@dataclass(frozen=True)
class Hello:
    """What a node says of itself."""

    client: int
    num_examples: int
    num_test: int
    counts: Ints | None  # (C,) exact label counts, where the recipe discloses them
    withheld: str = ""  # why they are not here although the recipe discloses them


def hello_of(note: Note, num_classes: int) -> Hello:
    """A node's introduction, checked."""
    try:
        client, examples, tests = (
            int(note.values[name]) for name in ("client", "num_examples", "num_test")
        )
        counts = counts_of(note, num_classes).astype(np.int64) if "counts" in note.arrays else None
    except DAMAGED as error:
        raise ForeignMessage(
            "hello", f"cannot be read ({error!r})", "Run the same version on both sides"
        ) from None
    if examples < 0 or tests < 0 or (counts is not None and counts.sum() != examples):
        raise ForeignMessage(
            "hello",
            f"{examples} examples, {tests} to test, label counts {counts}",
            "Check load_data",
        )
    withheld = " ".join(str(note.values.get("withheld", "")).split())[:200]
    return Hello(client, examples, tests, counts, withheld)


def counts_of(note: Note, num_classes: int) -> Floats:
    """(C,) label counts of a note."""
    counts = note.arrays["counts"]
    if counts.shape != (num_classes,):
        raise ValueError(f"label counts of shape {counts.shape}")
    return counts.astype(np.float64)


def reply_of(outcome: Outcome) -> Reply:
    """An outcome as the border check wants it; non-finite parameters go through it too, so they
    read alike everywhere.
    """
    note = outcome.note
    if note is None:
        return Reply(None, failure=outcome.why, sent=outcome.sent)
    facts = note.values
    try:
        return Reply(
            note.arrays["model"],
            float(facts["loss"]),
            float(facts["seconds"]),
            int(facts["steps"]),
            int(facts["examples"]),
            "" if int(facts["examples"]) > 0 < int(facts["steps"]) else "trained on nothing",
        )
    except DAMAGED as error:
        return Reply(None, failure=f"a reply that cannot be read ({error!r})"[:200])


def scores_of(outcome: Outcome, slots: Sequence[int]) -> dict[int, tuple[float, float, int]]:
    """slot -> (loss, accuracy, examples); nothing from a client that failed or sent something
    else.
    """
    if outcome.note is None:
        return {}
    try:
        rows = [
            (float(loss), float(accuracy), int(size))
            for loss, accuracy, size in outcome.note.values["scores"]
        ]
    except DAMAGED:
        return {}
    return dict(zip(slots, rows, strict=True)) if len(rows) == len(slots) else {}


def shares_of(outcome: Outcome, models: int) -> list[float]:
    """The share of a client's examples that each model fits best; nan from a client that failed
    or sent something else.
    """
    try:
        votes = (
            [int(count) for count in outcome.note.values["votes"]]
            if outcome.note is not None
            else []
        )
    except DAMAGED:
        votes = []
    usable = len(votes) == models and min(votes) >= 0 and sum(votes) > 0
    return [count / sum(votes) for count in votes] if usable else [float("nan")] * models


def slots_by_client(clients: Ids, start: Ids) -> dict[int, list[int]]:
    """client -> the slots it shall score, each once."""
    wanted: dict[int, list[int]] = {}
    for client, slot in zip(clients, start, strict=True):
        slots = wanted.setdefault(int(client), [])
        if int(slot) not in slots:
            slots.append(int(slot))
    return wanted


def pooled(each: Scores, models: int) -> Scores:
    """Scores of (model, client) pairs, model by model, as if all test sets were one."""
    sizes = each.num_examples.reshape(models, -1)
    total = sizes.sum(axis=1)
    share = sizes / np.maximum(total, 1)[:, None]

    def mean(values: Floats) -> Floats:
        known = np.nansum(values.reshape(models, -1) * share, axis=1)
        return np.where(total > 0, known, np.nan)

    return Scores(mean(each.loss), mean(each.accuracy), total)
