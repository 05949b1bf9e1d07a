"""From what came back to what the loop wants: replies of a training, scores of an evaluation."""

from __future__ import annotations

import numpy as np

from fedskew.runtime.flower.exchange import Outcome
from fedskew.runtime.replies import Reply
from fedskew.types import Floats, Ids, Scores


def reply_of(outcome: Outcome) -> Reply:
    """An outcome as the border check wants it; non-finite parameters go through it too, so they read alike everywhere."""
    note = outcome.note
    if note is None:
        return Reply(None, failure=outcome.why, sent=outcome.sent)
    facts = note.values
    return Reply(
        note.arrays["model"], float(facts["loss"]), float(facts["seconds"]), int(facts["steps"]), int(facts["examples"])
    )


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
