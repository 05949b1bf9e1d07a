"""What a round taught, for selection rules that learn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedskew.loop.asking import plausible
from fedskew.loop.method import Setting
from fedskew.loop.probe import head_shape, head_slices
from fedskew.loop.timing import turn_times
from fedskew.loop.training import Runner
from fedskew.types import Feedback, Layout, Memory, Params


def learn(setting: Setting, runners: Sequence[Runner], round: int, memory: Memory) -> Memory:
    """Let a selection rule that learns see what the round's updates were."""
    rule = setting.method.selection.rule
    if rule.learns_from is None:
        return memory
    return rule.learn(memory, feedback_of(setting, runners, round))


def feedback_of(setting: Setting, runners: Sequence[Runner], round: int) -> Feedback:
    """The usable replies of a round as a learning rule wants them."""
    layout, classes = setting.description.layout, setting.description.num_classes
    rule = setting.method.selection.rule
    replies = [(runner, client) for runner in runners for client in runner.loss]
    clients = [client for _, client in replies]
    examples = {c: r.work[c][0] for r, c in replies}
    returned = np.empty((0, layout.size), np.float32)
    received = returned
    if replies:
        returned = np.stack([r.returned[c] for r, c in replies])
        received = np.stack([r.received[c] for r, c in replies])
    job = setting.method.job_at(round)
    seconds = turn_times(setting, clients, job, examples=examples)
    reactions = None
    if rule.uses_auxiliary and replies:
        reactions = setting.runtime.auxiliary(returned).class_gradients
    return Feedback(
        round=round,
        clients=np.array(clients, np.int64),
        loss=plausible(np.array([r.loss[c] for r, c in replies], np.float64), classes),
        seconds=np.array([seconds[c] for c in clients], np.float64),
        examples=np.array([examples[c] for c in clients], np.int64),
        steps=np.array([r.work[c][1] for r, c in replies], np.int64),
        delta=_layer_of(returned - received, layout, classes, rule.learns_from or "none"),
        head_shape=head_shape(layout, classes),
        class_gradients=reactions,
    )


def _layer_of(delta: Params, layout: Layout, num_classes: int, layer: str) -> Params:
    """The part of the updates a rule learns from; an output layer is weight rows, then bias."""
    if layer == "all":
        return delta
    parts = head_slices(layout, num_classes) if layer == "last" else []
    return np.concatenate([delta[:, part] for part in parts], axis=1) if parts else delta[:, :0]
