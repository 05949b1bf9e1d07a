"""``disclose``: a mod for somebody's own ClientApp that tells a strategy of ours what rules need to
know of a client's labels, as far as the node's own policy allows::

    app = ClientApp(mods=[disclose(labels)])

Flower gives a mod only messages for functions that the app has, so the question comes as a train
message of our own format (:mod:`fedskew.runtime.flower.records`); the app's function never sees it.
To all other messages the mod applies what a :class:`Policy` can say of an app whose training is not
ours: rounds in a run, no tests, no training at "server-round" 0 (a probe of its labels), rounded
numbers of examples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Context, Message

from fedskew.errors import RunError
from fedskew.runtime.flower.ledger import count_training
from fedskew.runtime.flower.policy import Policy, Refused, policy_of
from fedskew.runtime.flower.records import HEAD, Note, from_records, to_records
from fedskew.runtime.flower.releasing import release_by
from fedskew.types import Ints

KIND = "disclose"
ROUND = "server-round"
MOST_CLASSES = 1_000_000

App = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, App], Message]


def disclose(labels: Callable[[Context], Any], *, examples: str = "num-examples") -> Mod:
    """A mod that answers for this client's labels: ``labels(context)`` gives those of its training
    examples, whole numbers from 0. ``examples``: what the app calls the number of examples in its
    replies.
    """

    def mod(message: Message, context: Context, app: App) -> Message:
        policy = policy_of(context.node_config)  # read anew: its owner may have changed it
        client = number_of(context)
        if HEAD in message.content.config_records:
            note = from_records(message.content, KIND)
            counts = count(labels(context), note.values["classes"], client)
            return Message(
                to_records(answer(note, counts, client, policy, context)), reply_to=message
            )
        _check(message, context, policy, client)
        return _rounded(app(message, context), policy, examples)

    return mod


def answer(note: Note, counts: Ints, client: int, policy: Policy, context: Context) -> Note:
    """How many examples this client has, and its label counts, exact or noised, or why not."""
    values: dict[str, Any] = {
        "client": max(client, 0),
        "numbered": client >= 0,
        "num_examples": policy.told(int(counts.sum())),
        "num_test": 0,
    }
    arrays: dict[str, Any] = {}
    signal = dict(note.values["signal"])
    try:
        if signal.pop("use") == "private":
            arrays["released"] = release_by(policy, context, client, counts, signal)
        else:
            policy.check_signal("exact", client)
            arrays["counts"] = counts.astype(np.uint32)
    except Refused as refusal:
        values["withheld"] = f"{refusal.what}. {refusal.remedy}".rstrip(". ")
    return Note(KIND, values, arrays)


def count(labels: Any, classes: int, client: int) -> Ints:
    """(C,) how often each label occurs.

    >>> count([2, 0, 2], 4, client=0).tolist()
    [1, 0, 2, 0]
    """
    if not 0 < int(classes) <= MOST_CLASSES:
        raise RunError(f"client {client}", f"label counts of {classes} classes", "Ask for fewer")
    found = np.asarray(labels).reshape(-1)
    if found.dtype.kind not in "iu" and len(found):
        what = f"labels of type {found.dtype}"
        raise RunError("disclose", what, "Let labels(context) return whole numbers from 0")
    if len(found) and not 0 <= found.min() <= found.max() < classes:
        what = f"labels from {found.min()} to {found.max()}, the model has {classes} outputs"
        raise RunError("disclose", what, f"Let labels(context) return numbers 0..{classes - 1}")
    return np.bincount(found.astype(np.int64), minlength=classes)


def number_of(context: Context) -> int:
    """The number a node was started with; -1: none."""
    config = context.node_config
    value = config.get("client-id", config.get("partition-id"))
    plain = isinstance(value, int) and not isinstance(value, bool)
    return int(value) if plain and 0 <= value < 1 << 31 else -1


def _check(message: Message, context: Context, policy: Policy, client: int) -> None:
    """Refuse what the policy does not allow."""
    kind = message.metadata.message_type.partition(".")[0]
    if kind == "evaluate":
        policy.check_scores(client)
    if kind == "train":
        rounds = [config.get(ROUND) for config in message.content.config_records.values()]
        if 0 in rounds:
            policy.check_signal("estimated", client)
        count_training(policy, str(context.run_id), client)


def _rounded(reply: Message, policy: Policy, examples: str) -> Message:
    """The reply with its number of examples as the policy tells it."""
    if policy.round_examples_to > 1 and reply.has_content():
        for metrics in reply.content.metric_records.values():
            if isinstance(metrics.get(examples), (int, float)):
                metrics[examples] = policy.told(int(metrics[examples]))
    return reply
