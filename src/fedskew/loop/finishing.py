"""After the last round: an output layer that is fitted anew, or a second act with another model.

Records go on: what finishing does stands in rounds after the recipe's last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from fedskew.accounting.traffic import FLOAT_BYTES, delivery_transfers, feature_transfers
from fedskew.errors import RecipeError
from fedskew.loop.costs import delivery_cost, feature_cost
from fedskew.loop.evaluation import evaluate
from fedskew.loop.method import Method, Setting, named
from fedskew.loop.serving import served, without_served
from fedskew.procedure import PROCEDURES
from fedskew.streams import stream
from fedskew.types import (
    Block,
    CalibrationRule,
    Ints,
    Moments,
    Params,
    RoundRecord,
    SecondActRule,
    State,
)

AT_ONCE = 8  # clients whose features are in memory at the same time

Played = tuple[State, RoundRecord]
PlayRound = Callable[[Setting, State], Played]


def finish(setting: Setting, state: State, play_round: PlayRound) -> Iterator[Played]:
    """What the recipe's [finish] does, from wherever the state is."""
    rule = None if setting.method.finish is None else setting.method.finish.rule
    if isinstance(rule, CalibrationRule) and state.round == setting.method.rounds:
        yield calibrate(setting, state, rule)
    if isinstance(rule, SecondActRule):
        yield from second_act(setting, state, play_round)


def stage_of(setting: Setting, state: State) -> Setting:
    """The setting a state belongs to: in a second act it is another one."""
    kept = state.memory.get("finish", {})
    return _second_setting(setting, kept["bodies"]) if "bodies" in kept else setting


# ---------------------------------------------------------------- an output layer fitted anew


def calibrate(setting: Setting, state: State, rule: CalibrationRule) -> Played:
    """Ask everybody for its features, fit the output layer, look at what came of it."""
    began, t = time.perf_counter(), state.round + 1
    description = setting.description
    weight, bias = _head(setting)
    there = setting.runtime.available(t) & (description.population.num_examples > 0)
    rng = stream(setting.seed, "finish")
    clients = np.flatnonzero(there)
    if 0 < rule.clients < len(clients):
        clients = np.sort(rng.choice(clients, rule.clients, replace=False))
    moments = gathered(setting, clients, served(state)[0])
    model = served(state)[0].copy()
    first = model[weight.offset : weight.stop].reshape(weight.shape).astype(np.float64)
    fitted = rule.calibrate(moments, first, model[bias.offset : bias.stop].astype(np.float64), rng)
    model[weight.offset : weight.stop] = fitted[0].ravel()
    model[bias.offset : bias.stop] = fitted[1]
    last = replace(setting, method=replace(setting.method, rounds=t))  # it is looked at
    memory = without_served(state.memory)
    state = replace(state, models=model[None], round=t, memory=memory)
    state, quality = evaluate(last, state)
    size = moment_bytes(*weight.shape)
    record = RoundRecord(
        round=t,
        chains=(),
        loss={},
        failures={},
        transfers=feature_transfers(len(clients), description.layout.bytes, size),
        accuracy=quality.accuracy,
        test_loss=quality.loss,
        seconds=time.perf_counter() - began,
        client_seconds={},
        cost=feature_cost(setting, clients, size),
        client_accuracy=quality.client_accuracy,
        client_loss=quality.client_loss,
    )
    return state, record


def _head(setting: Setting) -> tuple[Block, Block]:
    """The output layer, with a bias."""
    head = setting.description.layout.head(setting.description.num_classes)
    if head is None or head[1] is None:
        what = "the model has no linear output layer with a bias"
        raise RecipeError("finish", what, "Use a model whose last layer is one")
    return head[0], head[1]


def gathered(setting: Setting, clients: Ints, model: Params) -> Moments:
    """The features of these clients, added up: one row."""
    num_classes, width = _head(setting)[0].shape
    counts = np.zeros((1, num_classes), np.int64)
    sums = np.zeros((1, num_classes, width))
    products = np.zeros((1, num_classes, width, width))
    for begin in range(0, len(clients), AT_ONCE):
        found = setting.runtime.moments(clients[begin : begin + AT_ONCE], model)
        counts += found.counts.sum(axis=0)
        sums += found.sums.sum(axis=0)
        products += found.products.sum(axis=0)
    return Moments(counts, sums, products)


def moment_bytes(num_classes: int, width: int) -> int:
    """What one client sends: for each class a count, sums, and products (half of a symmetric
    matrix).
    """
    return FLOAT_BYTES * num_classes * (1 + width + width * (width + 1) // 2)


# ---------------------------------------------------------------- a second act


def second_act(setting: Setting, state: State, play_round: PlayRound) -> Iterator[Played]:
    """Rounds that train one output layer over the bodies of the models of the first act."""
    if "finish" not in state.memory:
        state = _begun(setting, state)
    second = stage_of(setting, state)
    size = len(state.memory["finish"]["bodies"]) * body_bytes(setting)
    while state.round < second.method.rounds:
        state, record = play_round(second, state)
        state, record = _with_delivery(setting, state, record, size)
        yield state, record


def _begun(setting: Setting, state: State) -> State:
    """The first act's models are kept as bodies; what rules remember of it is not."""
    second = _second_setting(setting, served(state))
    holds = np.zeros(len(state.loss), np.bool_)
    kept = {"bodies": np.array(served(state)), "holds": holds}
    return replace(state, models=second.initial[None], home=None, memory={"finish": kept})


def _second_setting(setting: Setting, bodies: Params) -> Setting:
    runtime = setting.runtime.concatenated(bodies)
    method = _second_method(setting.method)
    initial = runtime.initial(setting.seed)
    return Setting(method, runtime, runtime.describe(), initial, setting.seed)


def _second_method(method: Method) -> Method:
    """The same selection; clients train side by side, and the server averages."""
    if method.finish is None or not isinstance(method.finish.rule, SecondActRule):
        raise RecipeError("finish", "has no second act", "Use finish.use = 'fedconcat'")
    rule = method.finish.rule
    return replace(
        method,
        procedure=named("procedure", "parallel", PROCEDURES["parallel"]),
        job=rule.job(method.job),
        lr_decay=1.0,
        schedule="constant",
        bn="average",
        rounds=method.rounds + rule.num_rounds,
        finish=None,
    )


def body_bytes(setting: Setting) -> int:
    """One model of the first act without its output layer."""
    return setting.description.layout.bytes - FLOAT_BYTES * sum(b.size for b in _head(setting))


def _with_delivery(setting: Setting, state: State, record: RoundRecord, size: int) -> Played:
    """The round with the bodies on their way to clients that had not been sent them."""
    kept = state.memory["finish"]
    asked = np.array([c for chain in record.chains for c in chain.clients], np.int64)
    new = asked[~kept["holds"][asked]]
    holds = kept["holds"].copy()
    holds[new] = True
    record = replace(
        record,
        transfers=delivery_transfers(len(new), size) + record.transfers,
        cost=delivery_cost(setting, new, size) + record.cost,
    )
    memory = {**state.memory, "finish": {**kept, "holds": holds}}
    return replace(state, memory=memory), record
