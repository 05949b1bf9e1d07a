"""The served model is a running mean over the last rounds: tested, saved and finished, never
trained.
"""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.errors import RecipeError
from fedskew.loop.federation import run, settle
from fedskew.loop.serving import served
from fedskew.recipe import fingerprint, method_of, resolve
from fedskew.records import checkpoint_bytes, read_checkpoint
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import Layout

LAYOUT = Layout.of([("w", (2,), "weight")])
COUNTS = np.array([[10, 0], [0, 10], [5, 5]])


class Watched(ScriptedRuntime):
    """Everybody returns t squared in round t; what clients began with, and what was tested."""

    def __init__(self):
        self.began, self.tested = {}, []
        super().__init__(COUNTS, layout=LAYOUT, script=self.answer)

    def answer(self, client, round, model):
        self.began[round] = float(model[0])
        return Reply(np.full(2, round**2, np.float32), 0.5, 0.1, 1, 10)

    def initial(self, seed):
        return np.zeros(2, np.float32)

    def evaluate(self, models):
        self.tested.append(float(models[0, 0]))
        return super().evaluate(models)


def setting_of(served_rounds, rounds=6, **more):
    world = Watched()
    numbers = {"rounds": rounds, "clients_per_round": 3, "served_rounds": served_rounds}
    return world, settle(method_of(resolve({"run": numbers, **more})), world, 0)


def naive(values, n):
    """After each round: the mean of the first n, then each round counts 1 / n."""
    means = []
    for t, value in enumerate(values, start=1):
        if t <= n:
            means.append(sum(values[:t]) / t)
        else:
            means.append(means[-1] * (1 - 1 / n) + value / n)
    return means


@pytest.mark.parametrize("n", [2, 3, 5, 100])
def test_what_is_tested_is_the_mean_and_clients_train_the_last(n):
    world, setting = setting_of(n)
    *_, (state, _) = run(setting)
    assert world.tested == pytest.approx([0.0, *naive([t**2 for t in range(1, 7)], n)])
    last = {t: (t - 1) ** 2 for t in range(1, 7)}
    assert world.began == pytest.approx(last), "nobody trains the mean"
    assert state.models[0, 0] == pytest.approx(36.0)
    assert served(state)[0, 0] == pytest.approx(world.tested[-1])


def test_one_round_is_the_last_model_and_keeps_nothing():
    world, setting = setting_of(1)
    *_, (state, _) = run(setting)
    assert world.tested == pytest.approx([t**2 for t in range(7)])
    assert "served" not in state.memory
    assert served(state) is state.models


def test_a_checkpoint_carries_it(tmp_path):
    _, setting = setting_of(4)
    states = [state for state, _ in run(setting)]
    world, again = setting_of(4)
    (tmp_path / "c").write_bytes(checkpoint_bytes(states[3], "mark"))
    *_, (state, _) = run(again, read_checkpoint(tmp_path / "c", "mark"))
    assert np.array_equal(served(state), served(states[-1]))
    assert len(world.tested) == 3


def test_models_that_came_during_the_run_begin_a_new_mean():
    from fedskew.loop.serving import with_served

    memory = with_served({}, np.full((1, 2), 4.0, np.float32), 1, 3)
    memory = with_served(memory, np.full((2, 2), 7.0, np.float32), 2, 3)
    assert memory["served"]["models"].tolist() == [[7.0, 7.0], [7.0, 7.0]]


def test_what_was_said_later_changes_no_fingerprint():
    plain = resolve({})
    without = {**plain, "run": {k: v for k, v in plain["run"].items() if k != "served_rounds"}}
    assert fingerprint(plain) == fingerprint(without)
    assert fingerprint(resolve({"run": {"served_rounds": 2}})) != fingerprint(plain)


def test_it_counts_rounds():
    with pytest.raises(RecipeError, match=r"run\.served_rounds"):
        resolve({"run": {"served_rounds": 0}})


SMALL = {"run.rounds": 4, "data.clients": 6, "run.clients_per_round": 3, "partition.alpha": 0.2}


def test_the_saved_model_is_the_one_that_was_tested(tmp_path):
    pytest.importorskip("torch")
    import fedskew

    last = fedskew.run("fedavg", settings=SMALL, workers=1)
    mean = fedskew.run(
        "fedavg", settings={**SMALL, "run.served_rounds": 3}, workers=1, out=tmp_path / "r"
    )
    assert [r.loss for r in mean.rounds] == [r.loss for r in last.rounds], "training is the same"
    assert [r.transfers for r in mean.rounds] == [r.transfers for r in last.rounds], "and free"
    assert not np.array_equal(mean.models, last.models)
    assert np.array_equal(fedskew.Run.load(tmp_path / "r").models, mean.models)


def test_ccvr_begins_with_the_served_body():
    pytest.importorskip("torch")
    import fedskew

    served_alone = fedskew.run("fedavg", settings={**SMALL, "run.served_rounds": 3}, workers=1)
    finished = fedskew.run(
        "fedavg", settings={**SMALL, "run.served_rounds": 3, "finish.use": "ccvr"}, workers=1
    )
    head = served_alone.layout.head(10)[0]
    assert np.array_equal(finished.models[0, : head.offset], served_alone.models[0, : head.offset])
    assert not np.array_equal(finished.models, served_alone.models)
