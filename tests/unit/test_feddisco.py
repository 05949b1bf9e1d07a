"""FedDisco's weights by hand, where the label shares come from, and that it is not FedAvg."""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.aggregation.disco import disco_weights, feddisco
from fedskew.aggregation.mean import mean
from fedskew.errors import RecipeError
from fedskew.loop.federation import run, settle
from fedskew.recipe import load, method_of, override, resolve
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import Ends, Layout

LAYOUT = Layout.of([("w", (2,), "weight")])


def test_weights_by_hand():
    """d = (.5, 0, .1 sqrt 2) for two classes; raw .2 - .25 + .1, .3 + .1, .5 - .0707 + .1."""
    mixes = np.array([[0.5 + 0.5**1.5, 0.5 - 0.5**1.5], [0.5, 0.5], [0.6, 0.4]])
    raw = np.array([0.05, 0.4, 0.6 - 0.05 * 2**0.5])
    found = disco_weights(np.array([0.2, 0.3, 0.5]), mixes, 0.5, 0.1)
    assert found == pytest.approx(raw / raw.sum(), abs=1e-12)


def test_a_client_far_from_balance_gets_nothing_at_all():
    found = disco_weights(np.array([0.2, 0.8]), np.array([[1.0, 0.0], [0.5, 0.5]]), 0.5, 0.1)
    assert found.tolist() == [0.0, 1.0]  # .2 - .354 + .1 < 0


def test_kl_counts_absent_classes_as_nothing():
    mixes = np.array([[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    raw = np.array([0.5 - 0.1 * np.log(4), 0.5 - 0.1 * np.log(2)])
    found = disco_weights(np.array([0.5, 0.5]), mixes, 0.1, 0.0, "kl")
    assert found == pytest.approx(raw / raw.sum(), abs=1e-12)


def test_where_nobody_is_near_balance_sizes_decide():
    found = disco_weights(np.array([0.25, 0.75]), np.array([[1.0, 0.0], [0.0, 1.0]]), 5.0, 0.1)
    assert found.tolist() == [0.25, 0.75]


def test_equal_mixes_and_sizes_are_the_mean():
    rows = np.array([[1.0, 2.0], [3.0, 6.0]], np.float32)
    ends = Ends(rows, [5, 5], [1, 1], LAYOUT, [0, 1], 2, mixes=np.full((2, 4), 0.25))
    model = np.zeros(2, np.float32)
    assert feddisco(model, ends).tolist() == mean(model, ends).tolist() == [2.0, 4.0]
    skewed = Ends(rows, [5, 5], [1, 1], LAYOUT, [0, 1], 2, mixes=[[1, 0, 0, 0], [0.25] * 4])
    assert feddisco(model, skewed).tolist() != [2.0, 4.0]


def test_without_a_signal_it_is_refused():
    with pytest.raises(RecipeError, match=r"needs a \[signal\]"):
        resolve(override(load("fedavg"), {"aggregation.use": "feddisco"}))


COUNTS = np.array([[30, 0], [0, 10], [10, 10], [10, 30]])


def adds_its_number(client, round, model):
    """Each client adds its number + 1 to all weights."""
    return Reply(model + np.float32(client + 1), 0.5, 0.01, 1, int(COUNTS[client].sum()))


def one_round(changes):
    """How far one round with everybody moves the model."""
    base = {"data.clients": 4, "run.clients_per_round": 4, "run.rounds": 1}
    method = method_of(resolve(override(load("feddisco"), {**base, **changes})))
    runtime = ScriptedRuntime(COUNTS, layout=LAYOUT, script=adds_its_number)
    setting = settle(method, runtime, 0)
    states = [state for state, _ in run(setting)]
    return states[-1].models[0] - setting.initial


def test_the_loop_hands_over_what_the_signal_says():
    d = np.array([0.5**0.5, 0.5**0.5, 0.0, 0.125**0.5])
    raw = np.maximum(np.array([0.3, 0.1, 0.2, 0.4]) - 0.5 * d + 0.1, 0.0)
    moved = one_round({})
    assert moved == pytest.approx(np.full(2, raw / raw.sum() @ np.arange(1, 5)), abs=1e-5)
    plain = one_round({"aggregation.use": "mean"})
    assert plain == pytest.approx(np.full(2, 0.3 + 0.2 + 0.6 + 1.6), abs=1e-5)


def test_a_chain_counts_as_one_client_with_all_its_examples():
    """Chains 0-2 and 1-3 in either order, and so on: the shares of a chain are those of its sum."""
    moved = one_round({"procedure.use": "chains", "procedure.chains": 2})
    possible = []
    for first in ((0, 1), (0, 2), (0, 3)):
        groups = [list(first), [c for c in range(4) if c not in first]]
        sums = np.array([COUNTS[group].sum(axis=0) for group in groups], np.float64)
        sizes = sums.sum(axis=1)
        d = np.linalg.norm(sums / sizes[:, None] - 0.5, axis=1)
        raw = np.maximum(sizes / 100 - 0.5 * d + 0.1, 0.0)
        ends = [sum(c + 1 for c in group) for group in groups]
        possible.append(raw / raw.sum() @ ends)
    assert np.abs(np.array(possible) - moved[0]).min() < 1e-5
    assert len(set(np.round(possible, 3))) > 1
