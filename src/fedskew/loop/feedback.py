"""What a round taught, for selection rules that learn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedskew.accounting.devices import simulated_seconds
from fedskew.loop.asking import plausible
from fedskew.loop.method import Setting
from fedskew.loop.probe import head_shape, head_slices
from fedskew.loop.training import Runner
from fedskew.types import Feedback, Layout, Memory, Params, Stateful


def learn(setting: Setting, runners: Sequence[Runner], round: int, memory: Memory) -> Memory:
    """Let a selection rule that learns see what the round's updates were."""
    rule = setting.method.selection
    if not isinstance(rule.function, Stateful) or rule.function.learn is None:
        return memory
    return rule.function.learn(
        memory, feedback_of(setting, rule.function, runners, round), **rule.options
    )


def feedback_of(
    setting: Setting, rule: Stateful, runners: Sequence[Runner], round: int
) -> Feedback:
    """The usable replies of a round as a learning rule wants them."""
    layout, classes = setting.description.layout, setting.description.num_classes
    replies = [(runner, client) for runner in runners for client in runner.loss]
    ids = np.array([client for _, client in replies], np.int64)
    examples = np.array([r.work[c][0] for r, c in replies], np.int64)
    returned = (
        np.stack([r.returned[c] for r, c in replies])
        if replies
        else np.empty((0, layout.size), np.float32)
    )
    received = np.stack([r.received[c] for r, c in replies]) if replies else returned
    layer = setting.method.selection.options.get("layer", rule.layer)
    return Feedback(
        round=round,
        clients=ids,
        loss=plausible(np.array([r.loss[c] for r, c in replies], np.float64), classes),
        seconds=simulated_seconds(
            setting.description.population, ids, examples * setting.method.job.epochs
        ),
        examples=examples,
        steps=np.array([r.work[c][1] for r, c in replies], np.int64),
        delta=_layer_of(returned - received, layout, classes, layer),
        head_shape=head_shape(layout, classes),
        class_gradients=setting.runtime.auxiliary(returned).class_gradients
        if rule.auxiliary and replies
        else None,
    )


def _layer_of(delta: Params, layout: Layout, num_classes: int, layer: str) -> Params:
    """The part of the updates a rule learns from; the output layer is its weight rows, then its
    bias.
    """
    if layer == "all":
        return delta
    parts = head_slices(layout, num_classes) if layer == "last" else []
    return np.concatenate([delta[:, part] for part in parts], axis=1) if parts else delta[:, :0]
