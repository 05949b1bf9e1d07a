"""Whose BatchNorm statistics: the server's average, or each client's own (docs/methods.md 5,
``bn``).
"""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.errors import RecipeError
from fedskew.loop.federation import run, settle
from fedskew.loop.training import score_clients
from fedskew.recipe import method_of, resolve
from fedskew.records import checkpoint_bytes, read_checkpoint
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import Layout, ScoreOrder, Scores

LAYOUT = Layout.of(
    [("w", (2,), "weight"), ("running_mean", (1,), "buffer"), ("seen", (), "counter")]
)
COUNTS = np.array([[10, 0], [0, 10], [5, 5]])


class Watched(ScriptedRuntime):
    """Client i adds i + 1 to its statistics and 1 to its weights; what clients began with and
    were scored with is kept.
    """

    def __init__(self):
        self.began, self.scored = [], []
        super().__init__(COUNTS, layout=LAYOUT, script=self.answer)

    def answer(self, client, round, model):
        self.began.append((round, client, float(model[2])))
        return Reply(model + np.array([1, 1, client + 1, 1], np.float32), 0.5, 0.1, 1, 10)

    def initial(self, seed):
        return np.zeros(4, np.float32)

    def score(self, order):
        n, pairs = len(order.clients), zip(order.clients, order.start, strict=True)
        self.scored = [(int(client), order.models[slot].tolist()) for client, slot in pairs]
        return Scores(np.ones(n), np.ones(n), np.ones(n, np.int64))


def played(bn, rounds=3):
    world = Watched()
    method = method_of(
        resolve({"local": {"bn": bn}, "run": {"rounds": rounds, "clients_per_round": 3}})
    )
    setting = settle(method, world, 0)
    *_, (state, _) = run(setting)
    return world, setting, state


def test_averaged_statistics_are_everybodys():
    world, _, state = played("average")
    assert {start for round, _, start in world.began if round == 3} == {4.0}, "two rounds of + 2"
    assert "bn" not in state.memory


def test_local_statistics_go_on_where_each_client_left_them():
    world, setting, state = played("local")
    assert {client: start for round, client, start in world.began if round == 3} == {
        0: 2.0,
        1: 4.0,
        2: 6.0,
    }
    assert state.models[0].tolist() == [3.0, 3.0, 6.0, 3.0], (
        "weights as ever; the server's own statistics are the average"
    )
    assert {c: v.tolist() for c, v in state.memory["bn"].items()} == {
        "0": [3.0, 3.0],
        "1": [6.0, 3.0],
        "2": [9.0, 3.0],
    }
    score_clients(setting, state, ScoreOrder([2, 0], state.models, [0, 0], "test"))
    assert world.scored == [(2, [3.0, 3.0, 9.0, 3.0]), (0, [3.0, 3.0, 3.0, 3.0])], (
        "tested with its own"
    )


def test_local_statistics_are_part_of_the_checkpoint(tmp_path):
    *_, state = played("local", rounds=2)
    (tmp_path / "c").write_bytes(checkpoint_bytes(state, "m"))
    again = read_checkpoint(tmp_path / "c", "m")
    longer = settle(
        method_of(
            resolve({"local": {"bn": "local"}, "run": {"rounds": 3, "clients_per_round": 3}})
        ),
        Watched(),
        0,
    )
    *_, (end, _) = run(longer, again)
    assert checkpoint_bytes(end, "m") == checkpoint_bytes(played("local")[2], "m")


@pytest.mark.parametrize(
    ("use", "local", "message"),
    [
        ("scaffold", {"optimizer": "adam"}, "needs plain SGD"),
        ("scaffold", {"momentum": 0.9}, "needs plain SGD"),
        ("nova", {"optimizer": "adam"}, "no normaliser"),
        ("nova", {"momentum": 0.9, "prox_mu": 0.1}, "no normaliser"),
        ("dyn", {"prox_mu": 0.1}, "own quadratic term"),
    ],
)
def test_what_the_mathematics_does_not_allow_is_refused_before_anything_is_loaded(
    use, local, message
):
    with pytest.raises(RecipeError, match=message):
        resolve({"aggregation": {"use": use}, "local": local})
