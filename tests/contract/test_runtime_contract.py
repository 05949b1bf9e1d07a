"""Whoever stands between the loop and a runtime passes on every call of the protocol."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from fedskew.runtime.faults import Faults, FaultyRuntime
from fedskew.runtime.metered import MeteredRuntime
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.runtime.wrapped import WrappedRuntime
from fedskew.types import LocalJob, ReleasedCounts, Runtime, ScoreOrder, TrainOrder

COUNTS = np.array([[10, 0], [0, 30], [20, 0], [5, 5]])
MODELS = np.arange(12, dtype=np.float32).reshape(2, 6)
EVERY = [name for name, _ in inspect.getmembers(Runtime, inspect.isfunction) if name[0] != "_"]
METHODS = [name for name in EVERY if name != "concatenated"]  # answers with a runtime: see below


class World(ScriptedRuntime):
    """Notes every call, and answers nothing with a default."""

    def __init__(self):
        super().__init__(COUNTS)
        self.calls = []

    def __getattribute__(self, name):
        if name in METHODS:
            self.calls.append(name)
        return super().__getattribute__(name)

    def released_counts(self, clients):
        known = np.isin(np.arange(4), clients)
        return ReleasedCounts(known, COUNTS + 0.5)

    def best_fit(self, clients, models):
        return np.asarray(clients)[:, None] + np.arange(len(models)) / 10


class Still:
    name = "still"

    def start(self):
        pass

    def stop(self, watts):
        return 0.0


WRAPPERS = {
    "wrapped": WrappedRuntime,
    "faulty": lambda inner: FaultyRuntime(inner, Faults(), 0),
    "metered": lambda inner: MeteredRuntime(inner, Still()),
    "both": lambda inner: FaultyRuntime(MeteredRuntime(inner, Still()), Faults(), 0),
}
# one call of every method; no default values, so that an argument that gets lost shows
ARGUMENTS = {
    "describe": (),
    "initial": (3,),
    "label_counts": (),
    "released_counts": ([0, 2],),
    "available": (2,),
    "train": (TrainOrder([3, 1], MODELS, [1, 0], LocalJob(), 5, 7, np.ones((2, 6))),),
    "score": (ScoreOrder([3, 1], MODELS, [1, 0], "train", 2, 5, 7),),
    "evaluate": (MODELS,),
    "best_fit": ([2, 1], MODELS),
    "auxiliary": (MODELS,),
    "moments": ([2, 1], MODELS[0]),
    "frozen": (),
    "close": (),
}


def same(a, b):
    if is_dataclass(a):
        return type(a) is type(b) and all(
            same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a)
        )
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


def test_every_method_of_the_protocol_is_tried():
    assert sorted(ARGUMENTS) == sorted(METHODS)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrappers_pass_every_call_on(wrapper, method):
    inner, direct = World(), World()
    around = WRAPPERS[wrapper](inner)
    inner.calls.clear()
    answer = getattr(around, method)(*ARGUMENTS[method])
    assert same(answer, getattr(direct, method)(*ARGUMENTS[method]))
    assert set(inner.calls) == set(direct.calls)


@pytest.mark.parametrize("method", METHODS)
def test_a_plain_wrapper_hands_over_the_very_arguments(method):
    given = [object() for name in inspect.signature(getattr(Runtime, method)).parameters][1:]
    seen, answer = [], object()

    class Inner:
        def __getattr__(self, name):
            return lambda *arguments: (seen.append((name, *arguments)), answer)[1]

    returned = getattr(WrappedRuntime(Inner()), method)(*given)
    assert seen == [(method, *given)]
    assert returned is (None if method == "close" else answer)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_second_act_is_wrapped_as_the_first(wrapper):
    class Second(World):
        def concatenated(self, models):
            second = World()
            second.bodies = models
            return second

    around = WRAPPERS[wrapper](Second())
    second = around.concatenated(MODELS)
    assert type(second) is type(around)
    while isinstance(second, WrappedRuntime):
        second = second._inner
    assert second.bodies is MODELS
    first = around
    while isinstance(first, WrappedRuntime):
        first = first._inner
    assert isinstance(first, Second), "the first act has lost its runtime"


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_every_setting_of_an_order_arrives(wrapper):
    """Also where a wrapper cuts an order into pieces: put together, they are the order."""
    received = []

    class Noting(World):
        def train(self, order):
            received.append(order)
            return super().train(order)

        def score(self, order):
            received.append(order)
            return super().score(order)

    around = WRAPPERS[wrapper](Noting())
    for method in ("train", "score"):
        received.clear()
        (order,) = ARGUMENTS[method]
        getattr(around, method)(order)
        for field in fields(order):
            sent = [getattr(piece, field.name) for piece in received]
            wanted = getattr(order, field.name)
            if field.name in ("clients", "start", "corrections"):
                assert np.concatenate(sent).tolist() == wanted.tolist()
            else:
                assert all(same(wanted, value) for value in sent), field.name


def test_orders_are_cut_by_rows_and_cannot_be_changed():
    (order,) = ARGUMENTS["train"]
    cut = order.only([1])
    assert (cut.clients.tolist(), cut.start.tolist()) == ([1], [0])
    assert cut.corrections.shape == (1, 6)
    assert (cut.job, cut.seed, cut.round) == (order.job, 5, 7)
    assert order.only([]).clients.tolist() == []
    for array in (order.clients, order.models, order.start, order.corrections):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
    (scoring,) = ARGUMENTS["score"]
    cut = scoring.only([0])
    assert (cut.clients.tolist(), cut.start.tolist(), cut.which) == ([3], [1], "train")
    assert (cut.max_examples, cut.seed, cut.round) == (2, 5, 7)
