"""Faults are data: same seed, same faults; each kind ends up in the record under its own name."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedskew.errors import RecipeError
from fedskew.runtime.faults import Faults, FaultyRuntime
from fedskew.runtime.replies import Reply, collect
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import LocalJob, TrainOrder

K = 400
COUNTS = np.full((K, 2), 5)


JOB = LocalJob()


def train(faults, seed=0, round=1, job=JOB):
    runtime = FaultyRuntime(ScriptedRuntime(COUNTS), faults, seed)
    model = runtime.initial(0)[None]
    return runtime.train(TrainOrder(range(K), model, [0] * K, job, seed=0, round=round))


@pytest.mark.parametrize(
    ("faults", "reason", "share"),
    [
        (Faults(dropout=0.2), "dropped out", 0.2),
        (Faults(nan=0.1), "non-finite parameters", 0.1),
        (Faults(inf=0.1), "non-finite parameters", 0.1),
        (Faults(wrong_shape=0.3), "wrong shape: (5,) instead of (6,)", 0.3),
    ],
)
def test_each_kind_happens_as_often_as_asked(faults, reason, share):
    replies = train(faults)
    hit = np.array([why == reason for why in replies.failures])
    assert set(replies.failures) == {"", reason}
    assert abs(hit.mean() - share) < 5 * np.sqrt(share * (1 - share) / K)
    assert np.isfinite(replies.params[replies.ok]).all()
    assert (replies.ok == ~hit).all()


def test_silent_clients_send_no_bytes_corrupt_ones_do():
    assert not train(Faults(dropout=1.0)).sent.any()
    assert train(Faults(nan=1.0)).sent.all()


def test_same_seed_same_faults():
    faults = Faults(dropout=0.3, nan=0.2)
    assert train(faults, 1).failures == train(faults, 1).failures
    assert train(faults, 1).failures != train(faults, 2).failures
    assert train(faults, 1).failures != train(faults, 1, round=2).failures


def test_availability_by_chance_and_by_trace(tmp_path):
    chance = FaultyRuntime(ScriptedRuntime(COUNTS), Faults(available=0.5), 0)
    there = np.mean([chance.available(t).mean() for t in range(1, 21)])
    assert abs(there - 0.5) < 5 * 0.5 / np.sqrt(20 * K)
    (tmp_path / "trace.json").write_text(json.dumps([[0, 1], [2]]))
    traced = FaultyRuntime(ScriptedRuntime(COUNTS), Faults(trace=str(tmp_path / "trace.json")), 0)
    assert [np.flatnonzero(traced.available(t)).tolist() for t in (1, 2, 3)] == [
        [0, 1],
        [2],
        [0, 1],
    ]


@pytest.mark.parametrize("content", ["[]", "[[999]]", "{", "[[-1]]", "3"])
def test_a_bad_trace_is_refused(tmp_path, content):
    (tmp_path / "trace.json").write_text(content)
    with pytest.raises(RecipeError, match=r"faults\.trace"):
        FaultyRuntime(ScriptedRuntime(COUNTS), Faults(trace=str(tmp_path / "trace.json")), 0)


def test_a_chance_above_one_is_refused():
    with pytest.raises(RecipeError, match=r"faults\.nan: 1\.2 is not a probability"):
        Faults(nan=1.2)


def test_a_non_finite_loss_is_not_usable():
    replies = collect(
        [Reply(np.zeros(2, np.float32), float("nan")), Reply(np.zeros(2, np.float32), 1.0)], 2
    )
    assert replies.failures == ("non-finite loss", "")
