"""Replies that make the model worse on the server's own examples are not used
(``aggregation.verify``).

Robust rules see the ends of chains only. One hostile client in the middle of a chain spoils what
its successors begin with, so each reply is looked at as it comes, before it is handed on: the
server compares how well the received and the returned model know the labels of ``data.auxiliary``.
Under label skew an honest client unlearns what it does not hold, though never beyond measure (on
digits by 2.4 at most): all labels alike, the loss may rise by ``UNLEARNED``. On its own labels,
where they are known (a ``[signal]``), an honest client hardly ever does worse: there the loss may
rise by ``aggregation.verify``. A reversed update of ordinary length is found only by that.

It needs a relay through the server: what devices hand to each other nobody sees.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedskew.loop.method import Setting
from fedskew.types import Floats, Params, Replies, Signal, TrainOrder

LEAST = 1e-6  # a probability below it counts as this much
UNLEARNED = 3.0  # nats, mean over the classes
ROSE = "loss on the server's examples rose by"


def verified(
    setting: Setting, order: TrainOrder, replies: Replies, signal: Signal | None
) -> Replies:
    """The replies; those that make the loss jump are failures."""
    limit, rows = setting.method.guard.verify, np.flatnonzero(replies.ok)
    if not limit or not len(rows):
        return replies
    clients, start = np.asarray(order.clients)[rows], np.asarray(order.start)[rows]
    known, which = np.unique(start, return_inverse=True)
    before = _surprise(setting, order.models[known])[which]
    rise = _surprise(setting, replies.params[rows]) - before
    failures = list(replies.failures)
    for row, client, classes in zip(rows, clients, rise, strict=True):
        worse = too_much(classes, limit, None if signal is None else signal.rows[client])
        failures[row] = f"{ROSE} {worse:.2f}" if worse else ""
    return replace(replies, failures=tuple(failures))


def too_much(rise: Floats, limit: float, mix: Floats | None) -> float:
    """By how much the loss rose, if that is more than it may; else 0.

    >>> too_much(np.array([0.0, 4.0]), 0.5, np.array([1.0, 0.0]))
    0.0
    >>> too_much(np.array([0.6, 0.0]), 0.5, np.array([1.0, 0.0]))
    0.6
    >>> too_much(np.array([0.0, 9.0]), 0.5, np.array([1.0, 0.0]))
    4.5
    """
    alike, own = float(rise.mean()), 0.0 if mix is None else float(rise @ mix)
    if not alike <= UNLEARNED:  # nan is no loss at all
        return alike
    return own if own > limit else 0.0


def _surprise(setting: Setting, models: Params) -> Floats:
    """(n, C) minus the logarithm of the mean probability of the true label, class by class."""
    chances = setting.runtime.auxiliary(models).class_softmax
    truth = np.diagonal(chances, axis1=1, axis2=2)
    return np.asarray(-np.log(np.maximum(truth, LEAST)), np.float64)
