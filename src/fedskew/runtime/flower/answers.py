"""From what came back to what the loop wants: every reply is held against its form at the border,
so a broken or hostile client does not end the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedskew.runtime.border import (
    LOSS,
    MOST_COUNT,
    MOST_EXAMPLES,
    Array,
    Form,
    ListOf,
    Number,
    Row,
    shown,
    why_refused,
)
from fedskew.runtime.flower.exchange import Outcome
from fedskew.runtime.flower.records import ForeignMessage, Note
from fedskew.runtime.replies import Reply
from fedskew.types import Floats, Ids, Ints, Scores

UNKNOWN_LOSS = Number(LOSS.low, LOSS.high, nan=True)
SIZE = Number(0, MOST_EXAMPLES, whole=True)
MOST_FEATURE = 1e6  # of one number that reaches an output layer
HELLO: Form = {"client": SIZE, "num_examples": SIZE, "num_test": SIZE}


@dataclass(frozen=True)
class Hello:
    """What a node says of itself."""

    client: int
    num_examples: int
    num_test: int
    counts: Ints | None  # (C,) exact label counts, where the recipe discloses them
    withheld: str = ""  # why they are not here although the recipe discloses them


def said_by(outcome: Outcome, form: Form) -> Note:
    """What a client said, if it is as the form wants it; else ForeignMessage with the reason."""
    note = outcome.note
    if note is None:
        raise ForeignMessage("reply", outcome.why)
    why = why_refused({**note.values, **note.arrays}, form)
    if why:
        raise ForeignMessage("reply", why)
    return note


def hello_of(outcome: Outcome, num_classes: int) -> Hello:
    """A node's introduction, checked."""
    disclosed = outcome.note is not None and "counts" in outcome.note.arrays
    counted: Form = {"counts": Array((num_classes,), "<u4", 0, MOST_EXAMPLES)} if disclosed else {}
    note = said_by(outcome, {**HELLO, **counted})
    client, examples, tests = (int(note.values[name]) for name in HELLO)
    counts = note.arrays["counts"].astype(np.int64) if disclosed else None
    if counts is not None and counts.sum() != examples:
        what = f"label counts of {counts.sum()} examples, but it has {examples}"
        raise ForeignMessage("hello", what)
    return Hello(client, examples, tests, counts, _words(note.values.get("withheld", "")))


def _words(value: object) -> str:
    return shown(value) if isinstance(value, str) else ""


def released_counts_of(outcome: Outcome, num_classes: int) -> Floats:
    """(C,) label counts that a client has noised itself: any of them may be negative."""
    form: Form = {"counts": Array((num_classes,), "<f8", -MOST_COUNT, MOST_COUNT)}
    counts: Floats = said_by(outcome, form).arrays["counts"].astype(np.float64)
    return counts


def reply_of(outcome: Outcome) -> Reply:
    """An outcome as the border wants it, which :func:`fedskew.runtime.replies.collect` is."""
    note = outcome.note
    if note is None:
        return Reply(None, failure=outcome.why, sent=outcome.sent)
    facts = {name: note.values.get(name) for name in ("loss", "seconds", "steps", "examples")}
    return Reply(note.arrays.get("model"), **facts)  # type: ignore[arg-type]


def scores_of(
    outcome: Outcome, slots: Sequence[int], most: int
) -> dict[int, tuple[float, float, int]]:
    """slot -> (loss, accuracy, examples). The client has at most so many examples; a model that
    went astray may have no finite loss.
    """
    row = Row((UNKNOWN_LOSS, Number(0, 1, nan=True), Number(0, most, whole=True)))
    note = said_by(outcome, {"scores": ListOf(len(slots), row)})
    return {
        slot: (_or_nan(loss), _or_nan(accuracy), int(size))
        for slot, (loss, accuracy, size) in zip(slots, note.values["scores"], strict=True)
    }


def _or_nan(value: float) -> float:
    return float(value) if np.isfinite(value) else float("nan")


def shares_of(outcome: Outcome, models: int, most: int) -> list[float]:
    """The share of a client's examples that each model fits best. Votes are examples, or under a
    policy that rounds them hundredths.
    """
    each = Number(0, max(most, 100 + models), whole=True)
    votes = said_by(outcome, {"votes": ListOf(models, each)}).values["votes"]
    if not 0 < sum(votes) <= max(most, 100 + models):
        raise ForeignMessage("reply", f"votes of {sum(votes)} examples, but it has {most}")
    return [count / sum(votes) for count in votes]


def moments_of(
    outcome: Outcome, num_classes: int, width: int, most: int
) -> tuple[Ints, Floats, Floats]:
    """Counts (C,), sums (C, L) and products (C, L, L) of the features of a client that has so many
    examples.
    """
    rows, columns = np.triu_indices(width)
    largest = most * MOST_FEATURE
    form: Form = {
        "counts": Array((num_classes,), "<u4", 0, most),
        "sums": Array((num_classes, width), "<f4", -largest, largest),
        "products": Array(
            (num_classes, len(rows)), "<f4", -largest * MOST_FEATURE, largest * MOST_FEATURE
        ),
    }
    sent = said_by(outcome, form).arrays
    if int(sent["counts"].sum()) > most:
        raise ForeignMessage("reply", f"features of more examples than its {most}")
    products = np.zeros((num_classes, width, width))
    products[:, rows, columns] = sent["products"]
    products[:, columns, rows] = sent["products"]
    return sent["counts"].astype(np.int64), sent["sums"].astype(np.float64), products


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
