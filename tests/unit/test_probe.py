"""The probe: all are asked once, failures twice, output layers kept, every byte charged."""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.accounting.traffic import total_bytes
from fedskew.errors import RecipeError
from fedskew.loop.federation import prepare, settle
from fedskew.loop.probe import even_start, find_head, head_updates
from fedskew.recipe import method_of, resolve
from fedskew.runtime.faults import Faults, FaultyRuntime
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import WHOLE_BATCH, Layout

COUNTS = np.array([[8, 0, 2], [0, 5, 0], [0, 0, 0], [1, 1, 8]])
OPTIONS = {"probe": "all", "epochs": 1, "batch": 4, "lr": 0.1, "start": "model"}
HEAD = Layout.of(
    [("0.weight", (2, 5), "weight"), ("2.weight", (3, 2), "weight"), ("2.bias", (3,), "weight")]
)
STEPS = 4


def one_sgd_path(client, round, model):
    """First-order training of a linear softmax layer: the bias moves by lr * steps * (p - 1/C),
    the model's own equation.
    """
    share = COUNTS[client] / COUNTS[client].sum()
    moved = model.copy()
    moved[HEAD["2.bias"].offset : HEAD["2.bias"].stop] += np.float32(0.1 * STEPS) * (
        share - 1 / 3
    ).astype(np.float32)
    return Reply(moved, 1.0, 0.1, STEPS, int(COUNTS[client].sum()))


def runtime(script=one_sgd_path):
    return ScriptedRuntime(COUNTS, layout=HEAD, script=script)


def probe(world, **changes):
    probed = head_updates(world, world.describe(), world.initial(0), 0, 2, {**OPTIONS, **changes})
    return probed.updates, probed.transfers


def test_the_head_is_the_last_matrix_with_a_row_per_class():
    weight, bias = find_head(HEAD, 3)
    assert (weight.name, bias.name) == ("2.weight", "2.bias")
    assert find_head(Layout.of([("w", (3, 2), "weight")]), 3)[1] is None
    with pytest.raises(RecipeError, match="no linear output layer"):
        find_head(HEAD, 7)


@pytest.mark.parametrize("protocol", ["all", "cover"])
def test_everyone_with_examples_is_asked_once_and_charged(protocol):
    updates, transfers = probe(runtime(), probe=protocol)
    assert updates.answered.tolist() == [True, True, False, True]
    assert updates.weight.shape == (4, 3, 2)
    assert [(t.direction, t.kind, t.bytes, t.multicast) for t in transfers] == [
        ("down", "probe", 3 * HEAD.bytes, HEAD.bytes),
        ("up", "probe", 3 * HEAD.bytes, 3 * HEAD.bytes),
    ]


def test_the_recipe_finds_the_proportions():
    recipe = resolve({"signal": {"use": "estimated", "lr": 0.1}, "run": {"clients_per_round": 2}})
    state, record = prepare(settle(method_of(recipe), runtime(), 0))
    assert state.signal.source == "estimated"
    assert state.signal.known.tolist() == [True, True, False, True]
    expected = COUNTS[[0, 1, 3]] / COUNTS[[0, 1, 3]].sum(axis=1, keepdims=True)
    assert np.allclose(state.signal.rows[[0, 1, 3]], expected, atol=1e-5)
    assert total_bytes(record.transfers, "up") == 3 * HEAD.bytes


def test_a_client_that_fails_is_asked_again_and_then_counts_as_uniform():
    def moody(client, round, model):
        if client == 1 or (client == 0 and round == 1 << 31):
            return Reply(None, failure="gone", sent=False)
        return one_sgd_path(client, round, model)

    updates, transfers = probe(runtime(moody))
    assert updates.answered.tolist() == [True, False, False, True]
    assert [t.bytes for t in transfers] == [5 * HEAD.bytes, 2 * HEAD.bytes]
    recipe = resolve({"signal": {"use": "estimated", "lr": 0.1}})
    state, _ = prepare(settle(method_of(recipe), runtime(moody), 0))
    assert np.allclose(state.signal.rows[1], 1 / 3)


def test_faults_reach_the_probe():
    updates, _ = probe(FaultyRuntime(runtime(), Faults(nan=1.0), 0))
    assert not updates.answered.any()


def test_rlu_looks_at_the_auxiliary_set():
    recipe = resolve({"signal": {"use": "estimated", "method": "rlu", "lr": 0.1}})
    state, _ = prepare(settle(method_of(recipe), runtime(), 0))
    # the scripted auxiliary softmax is uniform, so the least squares must give back what
    # bias_linear gives
    expected = COUNTS[[0, 1, 3]] / COUNTS[[0, 1, 3]].sum(axis=1, keepdims=True)
    assert np.allclose(state.signal.rows[[0, 1, 3]], expected, atol=1e-4)


class Listening(ScriptedRuntime):
    """Notes the orders it is given."""

    def __init__(self):
        super().__init__(COUNTS, layout=HEAD, script=one_sgd_path)
        self.orders = []

    def initial(self, seed):
        return np.arange(HEAD.size, dtype=np.float32)

    def train(self, order):
        self.orders.append(order)
        return super().train(order)


@pytest.mark.parametrize(
    ("options", "batch", "even"),
    [({}, WHOLE_BATCH, True), ({"batch": 32, "lr": 0.001, "start": "model"}, 32, False)],
)
def test_the_probe_is_one_step_on_everything_from_even_guesses_unless_told_otherwise(
    options, batch, even
):
    world = Listening()
    recipe = resolve({"signal": {"use": "estimated", **options}})
    _, record = prepare(settle(method_of(recipe), world, 0))
    (order,) = world.orders
    assert (order.job.batch, order.job.epochs, order.job.objective) == (batch, 1, "cross_entropy")
    head = slice(HEAD["2.weight"].offset, HEAD["2.bias"].stop)
    assert (not order.models[0, head].any()) == even
    assert (order.models[0, : head.start] == world.initial(0)[: head.start]).all()
    assert total_bytes(record.transfers, "down") == 3 * HEAD.bytes, "the same bytes either way"


def test_an_output_layer_that_is_even_already_is_sent_as_it_is():
    world = runtime()
    bacsa = np.ones(HEAD.size, np.float32)
    bacsa[HEAD["2.weight"].offset : HEAD["2.weight"].stop] = 0.01
    bacsa[HEAD["2.bias"].offset : HEAD["2.bias"].stop] = 0
    assert even_start(bacsa, world.describe()) is bacsa
    biased = bacsa.copy()
    biased[-1] = 0.5
    assert not even_start(biased, world.describe())[HEAD["2.weight"].offset :].any()
