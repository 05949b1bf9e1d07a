"""What clients sent back after training, checked at the border: a row that is usable, or a reason
why it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedskew.runtime.border import SECONDS, Form, Model, training_form, why_refused
from fedskew.types import Ints, Layout, Params, Replies, TrainOrder


@dataclass(frozen=True)
class Reply:
    """One client's answer as it arrived, unchecked."""

    params: NDArray[np.float32] | None
    loss: float = float("nan")
    seconds: float = 0.0
    steps: int = 0
    examples: int = 0
    failure: str = ""
    sent: bool = True  # bytes came back; False for a client that fell silent
    # what border.why_unfit found where the model was made, on this machine; None = nobody looked
    unfit: str | None = None


class Trained(NamedTuple):
    """What is said of one training run, beside its parameters."""

    loss: float
    seconds: float
    steps: int
    examples: int
    unfit: str  # by border.why_unfit, here where the numbers are still in the cache


def reply_of(replies: Replies, row: int) -> Reply:
    """One row of checked replies, as a reply again."""
    return Reply(
        replies.params[row],
        float(replies.loss[row]),
        float(replies.seconds[row]),
        int(replies.steps[row]),
        int(replies.examples[row]),
        replies.failures[row],
        bool(replies.sent[row]),
    )


def forms_of(order: TrainOrder, sizes: Ints) -> list[Form]:
    """What each client of an order may answer; ``sizes`` (K,): how many examples everybody has."""
    return [training_form(int(sizes[client]), order.job) for client in order.clients]


ANYTHING = training_form()  # for replies that were checked before, or that a test made up


def why_unusable(reply: Reply, form: Form, model: Model) -> str:
    """The reason a reply cannot enter the model, or ``""``.

    >>> four = Model(Layout.of([("w", (4,), "weight")]))
    >>> why_unusable(Reply(np.zeros(3, np.float32), loss=0.1), ANYTHING, four)
    'wrong shape: (3,) instead of (4,)'
    """
    if reply.failure:
        return reply.failure
    if reply.params is None:
        return "no parameters"
    why = why_refused(vars(reply), form)
    if why or reply.unfit is not None:
        return why or reply.unfit or ""
    return model.why_not("params", reply.params)


def collect(
    replies: Sequence[Reply],
    size: int,
    rows: Params | None = None,
    *,
    layout: Layout | None = None,
    forms: Sequence[Form] | None = None,
) -> Replies:
    """Check every reply against its form and stack the usable ones.

    ``rows`` is an (n, D) array that already holds the parameters, to save a copy; rows of unusable
    replies are zeroed in it. Without ``forms``: whatever anybody may say.

    >>> collect([Reply(np.ones(2, np.float32), 0.5), Reply(None, failure="dropped out")], 2).ok
    array([ True, False])
    """
    model = Model(layout or Layout.of([("all", (size,), "weight")]))
    forms = forms or [ANYTHING] * len(replies)
    failures = tuple(why_unusable(r, f, model) for r, f in zip(replies, forms, strict=True))
    params = np.empty((len(replies), size), np.float32) if rows is None else rows
    for i, (reply, failure) in enumerate(zip(replies, failures, strict=True)):
        if failure:
            params[i] = 0.0
        elif rows is None:
            params[i] = reply.params
    usable = [None if why else reply for reply, why in zip(replies, failures, strict=True)]
    return Replies(
        params=params,
        loss=np.array([r.loss if r else np.nan for r in usable], np.float64),
        seconds=np.array([_known_seconds(reply) for reply in replies], np.float64),
        steps=np.array([r.steps if r else 0 for r in usable], np.int64),
        examples=np.array([r.examples if r else 0 for r in usable], np.int64),
        failures=failures,
        sent=np.array([reply.sent and reply.params is not None for reply in replies], np.bool_),
    )


def _known_seconds(reply: Reply) -> float:
    """How long it took, also where the reply is not usable; 0 if that is nonsense itself."""
    return 0.0 if SECONDS.why_not("seconds", reply.seconds) else reply.seconds
