"""One model per group: who trains which, what travels, where clients live, what is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedskew import run as run_recipe
from fedskew.errors import RecipeError, RunError
from fedskew.loop.federation import prepare, run, settle
from fedskew.loop.method import Method, named
from fedskew.procedure import PROCEDURES
from fedskew.procedure.per_cluster import homes_of
from fedskew.recipe import load, method_of, override, resolve
from fedskew.records import line_of, record_of
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.selection import SELECTIONS
from fedskew.types import AskSlots, Clustering, Plan, ProcedureRule, Scores

COUNTS = np.array([[9, 1], [9, 1], [1, 9], [1, 9], [9, 1], [5, 5]])


def add_client_number(client, round, model):
    return Reply(model + np.float32(client + 1), loss=0.5, seconds=0.5, steps=2, examples=10)


def recipe(procedure, **tables):
    base = {
        "signal": {"use": "histogram"},
        "distance": {"use": "psi"},
        "clustering": {"use": "kmeans"},
        "selection": {"use": "stratified", "fraction": 1.0},
        "procedure": {"use": procedure} if isinstance(procedure, str) else procedure,
        "run": {"rounds": 2, "clients_per_round": 6},
    }
    return resolve({**base, **tables})


def play(resolved, *, runtime=None, seed=3):
    setting = settle(
        method_of(resolved), runtime or ScriptedRuntime(COUNTS, script=add_client_number), seed
    )
    return setting, list(run(setting))


def small_recipe(**changes):
    fixed = {
        "data.clients": 12,
        "run.rounds": 4,
        "local.epochs": 1,
        "partition.alpha": 1.0,
        "run.clients_per_round": 6,
    }
    return override(load("clust_psi_pfl"), {**fixed, **changes})


# ---------------------------------------------------------------- per cluster


def test_clusters_train_their_own_models():
    setting, played = play(recipe("per_cluster"))
    state = played[-1][0]
    labels = state.clustering.labels
    assert labels[[0, 1, 4]].tolist() == [0, 0, 0]
    assert labels[[2, 3]].tolist() == [1, 1]
    assert state.home.tolist() == labels.tolist()
    for slot in range(state.clustering.k):
        shift = np.mean([c + 1 for c in np.flatnonzero(labels == slot)])
        assert np.allclose(state.models[slot], setting.initial + 2 * shift, atol=1e-5)
    assert {(c.slot, c.clients[0]) for c in played[1][1].chains} == {
        (labels[i], i) for i in range(6)
    }


def test_one_cluster_is_fedavg_bit_for_bit():
    one = run_recipe(small_recipe(**{"clustering.count": 1}), workers=1, seed=5)
    avg = run_recipe(
        small_recipe(**{"clustering.count": 1, "procedure.use": "parallel"}), workers=1, seed=5
    )
    assert one.models.tobytes() == avg.models.tobytes()
    assert [r.chains for r in one.rounds] == [r.chains for r in avg.rounds]
    assert one.summary()["final_accuracy"] == avg.summary()["final_accuracy"]
    two = run_recipe(small_recipe(**{"clustering.count": 2}), workers=1, seed=5)
    assert two.models.shape[0] == 2
    assert not any(np.array_equal(model, avg.models[0]) for model in two.models)


def test_an_unserved_cluster_keeps_its_model():
    """Its clients are away in round 1: nothing trains it, nothing is charged for it, its clients
    are still tested with it.
    """

    class Away(ScriptedRuntime):
        def available(self, round):
            return np.array([True, True, round > 1, round > 1, True, True])

    setting, played = play(recipe("per_cluster"), runtime=Away(COUNTS, script=add_client_number))
    first, last = played[1][0], played[2][0]
    slot = first.clustering.labels[2]
    assert np.array_equal(first.models[slot], setting.initial)
    assert np.allclose(last.models[slot], setting.initial + 3.5, atol=1e-6)
    assert (
        sum(t.bytes for t in played[1][1].transfers if t.direction == "up" and t.kind == "model")
        == 4 * 24
    )


def test_clusters_of_one_client():
    resolved = recipe("per_cluster", clustering={"use": "kmeans", "count": 6})
    setting, played = play(
        resolved, runtime=ScriptedRuntime(np.diag([9, 9, 9, 9, 9, 9]), script=add_client_number)
    )
    assert played[-1][0].clustering.k == 6
    shifts = (played[-1][0].models - setting.initial)[:, 0]
    assert np.allclose(shifts, 2 * np.arange(1, 7), atol=1e-5)


def test_clients_in_no_cluster_live_in_the_largest():
    assert homes_of(np.array([1, 1, 0, -1, -1])).tolist() == [1, 1, 0, 1, 1]
    empty = np.vstack([COUNTS, [0, 0]])
    _, played = play(recipe("per_cluster"), runtime=ScriptedRuntime(empty))
    state = played[-1][0]
    assert state.clustering.labels[6] == -1
    assert state.home[6] == np.bincount(state.clustering.labels[:6]).argmax()
    assert 6 not in {c for _, r in played for chain in r.chains for c in chain.clients}


def test_per_cluster_needs_clusters():
    with pytest.raises(RecipeError, match=r"procedure per_cluster: needs a \[clustering\]"):
        resolve({"procedure": {"use": "per_cluster"}})


def test_every_cluster_trains_in_one_wave():
    calls = []

    class Counting(ScriptedRuntime):
        def train(self, order):
            calls.append((len(order.clients), len(set(order.start))))
            return super().train(order)

    play(recipe("per_cluster"), runtime=Counting(COUNTS))
    assert [n for n, _ in calls] == [6, 6]
    assert calls[0][1] > 1


# ---------------------------------------------------------------- alone


def test_alone_nothing_travels_and_nothing_is_shared():
    resolved = recipe("local_only", selection={"use": "uniform"})
    setting, played = play(resolved)
    state = played[-1][0]
    assert np.allclose((state.models - setting.initial)[:, 0], 2 * np.arange(1, 7), atol=1e-5)
    assert state.home.tolist() == list(range(6))
    assert all(t.kind == "histogram" for _, r in played for t in r.transfers)


def test_too_many_own_models_are_refused():
    begin = PROCEDURES["local_only"]().begin
    with pytest.raises(RunError, match=r"40\.0 GB"):
        begin(lambda i: np.zeros(1_000_000, np.float32), 10_000)


# ---------------------------------------------------------------- what procedures may ask


class Fits(ScriptedRuntime):
    """The loss of a model at a client is how far its first entry is from the client's number."""

    def score(self, order):
        assert order.which in ("train", "test")
        loss = np.abs(order.models[order.start, 0] - order.clients)
        return Scores(loss, np.exp(-loss), np.full(len(loss), 10))


@dataclass(frozen=True)
class Idle(ProcedureRule):
    """A procedure that lets nobody train."""

    def plan(self, memory, ids, view, rng):
        return Plan(()), memory


def settled(procedure, **changes):
    method = Method(
        selection=named("selection", "uniform", SELECTIONS["uniform"]),
        procedure=named("procedure", "mine", procedure),
        aggregation=named("aggregation", "mean", lambda model, ends: ends.params.mean(axis=0)),
        **{"rounds": 1, "clients_per_round": 6, **changes},
    )
    return settle(method, Fits(COUNTS, script=add_client_number), 0)


def test_slot_losses_are_asked_answered_and_charged():
    seen = []

    class Asking(Idle):
        def begin(self, fresh, size):
            return np.stack([fresh(0) * 0 + value for value in (0.0, 4.0)])

        def plan(self, memory, ids, view, rng):
            if not view.answers:
                return AskSlots(ids, np.array([0, 1])), memory
            seen.append(view.answers[0].values)
            return Plan(()), memory

    setting = settled(Asking, min_ok=0)
    records = [record for _, record in run(setting)]
    assert sorted(seen[0].tolist()) == sorted([[c, abs(4 - c)] for c in range(6)])
    assert [(t.direction, t.kind, t.bytes) for t in records[1].transfers] == [
        ("down", "model", 6 * 2 * 24),
        ("up", "loss", 6 * 2 * 4),
    ]


def test_a_procedure_that_never_plans_is_stopped():
    class Asking(Idle):
        def plan(self, memory, ids, view, rng):
            return AskSlots(ids, [0]), memory

    setting = settled(Asking)
    with pytest.raises(RunError, match="asked 9 questions"):
        list(run(setting))


@pytest.mark.parametrize("shape", [(6,), (2, 5), (0, 6)])
def test_wrong_first_models_are_caught(shape):
    class Broken(Idle):
        def begin(self, fresh, size):
            return np.zeros(shape)

    with pytest.raises(RunError, match="began with models of shape"):
        list(run(settled(Broken)))


@pytest.mark.parametrize("home", [[0], [0, 0, 0, 0, 0, 7], [-1] * 6])
def test_wrong_homes_are_caught(home):
    class Broken(Idle):
        looks_back = True

        def after(self, memory, seen):
            return seen.models, np.array(home), memory

    with pytest.raises(RunError, match="left a client without a model"):
        list(run(settled(Broken, min_ok=0)))


def test_fresh_models_differ_and_the_run_keeps_its_own():
    made = []

    class Fresh(Idle):
        def begin(self, fresh, size):
            made.extend(fresh(i) for i in (0, 1, 2, 1))
            return np.stack(made[:3])

    setting = settled(Fresh, min_ok=0)
    list(run(setting))
    assert np.array_equal(made[0], setting.initial)
    assert np.array_equal(made[1], made[3])
    assert len(np.unique(np.stack(made), axis=0)) == 3


def test_parts_that_never_travel_are_those_of_the_runs_own_seed():
    """A runtime keeps the frozen parts of the last model it was asked for."""

    class Frozen(Fits):
        def initial(self, seed):
            self.frozen = seed
            return super().initial(seed)

    class Fresh(Idle):
        def begin(self, fresh, size):
            return np.stack([fresh(0), fresh(1)])

    method = settled(Fresh).method
    setting = settle(method, Frozen(COUNTS), 5)
    prepare(setting)
    assert setting.runtime.frozen == 5


def test_a_client_whose_losses_make_no_sense_stays_where_it_lives():
    class Partly(Fits):
        def score(self, order):
            scores = super().score(order)
            slots, clients = np.asarray(order.start), np.asarray(order.clients)
            unknown = (clients == 2) | ((clients == 0) & (slots == 0))
            return replace(scores, loss=np.where(unknown, np.nan, scores.loss))

    class Homes(Idle):
        def begin(self, fresh, size):
            return np.stack([fresh(0) * 0 + value for value in (0.0, 4.0, 5.0)])

        def plan(self, memory, ids, view, rng):
            return Plan((), home=np.full(6, 2)), memory

        def rehome(self, memory, num_slots):
            return np.array([0, 1])

    setting = settle(settled(Homes, min_ok=0).method, Partly(COUNTS), 0)
    (before, _), (after, _) = run(setting)
    assert before.home.tolist() == [1, 0, 0, 1, 1, 1], "at first it lives in the first of them"
    assert after.home.tolist() == [1, 0, 2, 1, 1, 1]


# ---------------------------------------------------------------- what is measured


def test_global_and_client_figures_stand_side_by_side():
    settings = {
        "run.evaluate_clients_every": 2,
        "data.client_test": "split",
        "procedure.use": "parallel",
    }
    result = run_recipe(small_recipe(**settings), workers=1)
    assert [r for r, _ in result.evaluations] == [0, 1, 2, 3, 4]
    assert [r for r, _ in result.client_evaluations] == [0, 2, 4]
    # under "split" the central test set is all clients' test rows, so for one model both figures
    # must agree
    assert result.client_evaluations[-1][1] == pytest.approx(result.evaluations[-1][1], abs=1e-12)
    summary = result.summary()
    assert summary["client_accuracy"]["weighted"] == pytest.approx(
        summary["last_accuracy"], abs=1e-12
    )
    assert summary["client_accuracy"]["excluded"] == 0


def test_several_models_have_no_global_accuracy():
    result = run_recipe(small_recipe(**{"clustering.count": 2}), workers=1)
    summary = result.summary()
    assert np.isnan(summary["final_accuracy"])
    assert np.isnan(summary["best_accuracy"])
    assert summary["models"] == 2
    assert summary["client_accuracy"]["weighted"] == pytest.approx(result.client_evaluations[-1][1])
    assert [r for r, _ in result.client_evaluations] == [1, 2, 3, 4]


def test_old_records_can_still_be_read():
    _, played = play(recipe("per_cluster"))
    line = line_of(played[-1][1])
    again = record_of(line)
    assert again.client_accuracy == played[-1][1].client_accuracy
    import json

    content = json.loads(line)
    del content["client_accuracy"], content["client_loss"]
    assert np.isnan(record_of(json.dumps(content)).client_accuracy)


def test_no_client_tests_for_several_models_is_one_clear_line():
    two = {"clustering.count": 2, "data.client_test": "none"}
    x = np.random.default_rng(0).normal(size=(240, 4)).astype(np.float32)
    y = np.arange(240) % 4
    with pytest.raises(RunError, match="clients have no test sets"):
        run_recipe(small_recipe(**two), data=(x, y, x[:40], y[:40]), workers=1)


def test_clustering_survives_as_data():
    assert isinstance(play(recipe("per_cluster"))[1][-1][0].clustering, Clustering)
