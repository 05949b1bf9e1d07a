"""Objectives in recipes: their table, what is refused, what goes down to clients, what it costs."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fedskew.errors import RecipeError
from fedskew.loop.federation import play_round, prepare, settle
from fedskew.objective import OBJECTIVES, loss_for
from fedskew.recipe import fingerprint, load, method_of, resolve
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import LocalJob

COUNTS = np.array([[8, 2], [0, 10], [5, 5], [7, 3]])


class Listening(ScriptedRuntime):
    """Notes the jobs that clients are given."""

    def __init__(self):
        super().__init__(COUNTS)
        self.jobs = []

    def train(self, order):
        self.jobs.append(order.job)
        return super().train(order)


def played(recipe, rounds=1):
    runtime = Listening()
    numbers = {"rounds": rounds, "clients_per_round": 2, "min_ok": 0}
    setting = settle(method_of(resolve({"run": numbers, **recipe})), runtime, 0)
    state, _ = prepare(setting)
    _, record = play_round(setting, state)
    return runtime.jobs, record


def test_a_recipe_says_it_in_a_table_of_its_own():
    resolved = resolve(load("logit_adjusted"))
    options = {"tau": 1.0, "smoothing": 1e-3, "reference": "uniform"}
    assert resolved["objective"] == {"use": "logit_adjusted", **options}
    assert not {"objective", "label_shares"} & set(resolved["local"])
    job = method_of(resolved).job
    assert (job.objective, dict(job.objective_options)["tau"]) == ("logit_adjusted", 1.0)


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        ({"use": "fedrs", "alpha": 2.0}, r"objective\.alpha"),
        ({"use": "logit_adjustd"}, "Did you mean"),
        ({"use": "fedlc", "tau": -1.0}, "tau >= 0"),
        ({"use": "fedlc", "denominator": "none"}, "denominator"),
        ({"use": "fedntd", "temperature": 0.0}, "temperature > 0"),
        ({"use": "fedvls", "suppression": -0.1}, "suppression = -0.1"),
        ({"use": "logit_adjusted", "reference": "global"}, r"Add a \[signal\]"),
    ],
)
def test_what_makes_no_sense_is_refused_when_the_recipe_is_resolved(objective, words):
    with pytest.raises(RecipeError, match=words):
        resolve({"objective": objective})


def test_plain_cross_entropy_keeps_the_fingerprint_of_recipes_from_before_the_stage():
    resolved = resolve(load("fedavg"))
    without = {key: value for key, value in resolved.items() if key != "objective"}
    assert fingerprint(resolved) == fingerprint(without)
    assert fingerprint(resolve(load("fedrs"))) != fingerprint(resolved)


def test_global_shares_go_down_with_the_job_and_are_charged():
    recipe = {
        "signal": {"use": "histogram"},
        "objective": {"use": "logit_adjusted", "reference": "global"},
    }
    (job,), record = played(recipe)
    assert job.label_shares == pytest.approx((0.5, 0.5))
    loss = loss_for(job, COUNTS[1])
    assert loss.shift == pytest.approx(np.log(np.array([0.001, 1.001]) / 0.501))
    told = [t for t in record.transfers if t.kind == "control"]
    assert [(t.direction, t.bytes, t.multicast) for t in told] == [("down", 2 * 2 * 4, 2 * 4)]


def test_nobody_is_told_shares_that_the_objective_does_not_need():
    for objective in ({"use": "logit_adjusted"}, {"use": "fedlc"}):
        (job,), record = played({"signal": {"use": "histogram"}, "objective": objective})
        assert job.label_shares == ()
        assert not [t for t in record.transfers if t.kind == "control"]


def test_a_teacher_costs_a_forward_pass():
    _, plain = played({})
    for name, share in (("fedlc", 1.0), ("fedntd", 4 / 3), ("fedvls", 4 / 3)):
        _, record = played({"objective": {"use": name}})
        assert record.cost.sample_passes == pytest.approx(plain.cost.sample_passes * share), name
        assert record.cost.seconds >= plain.cost.seconds


def test_constant_compute_seconds_are_those_of_plain_training():
    devices = {"compute_seconds": 1.0, "message_seconds": 0.001}
    _, plain = played({"devices": devices})
    _, taught = played({"devices": devices, "objective": {"use": "fedntd"}})
    assert taught.cost.seconds - plain.cost.seconds == pytest.approx(1 / 3)


def test_somebodys_own_objective_can_do_all_of_it(tmp_path, monkeypatch):
    (tmp_path / "my_losses.py").write_text(
        "import numpy as np\n"
        "from fedskew.objective import Distillation, LocalLoss\n"
        "from fedskew.types import needs\n"
        "@needs('signal')\n"
        "def both(counts, shares, *, weight: float = 0.5):\n"
        "    return LocalLoss(shift=np.log(shares), distillation=Distillation(weight))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    objective = {"use": "my_losses:both", "weight": 0.25}
    with pytest.raises(RecipeError, match=r"needs the federation's label shares.*\[signal\]"):
        resolve({"objective": objective})
    (job,), record = played({"signal": {"use": "histogram"}, "objective": objective})
    loss = loss_for(job, COUNTS[0])
    assert loss.distillation.weight == 0.25
    assert loss.shift == pytest.approx(np.log([0.5, 0.5]))
    assert record.cost.sample_passes == pytest.approx(20 * 4 / 3)
    sys.modules.pop("my_losses", None)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_job_crosses_as_json(name):
    import json
    from dataclasses import asdict

    job = LocalJob(objective=name, objective_options=(("tau", 1.0),), label_shares=(0.5, 0.5))
    assert LocalJob(**json.loads(json.dumps(asdict(job)))) == job


def test_a_client_that_lacks_fewer_than_two_classes_needs_no_vacant_teacher():
    job = LocalJob(objective="fedvls")
    assert loss_for(job, np.array([3, 1, 0])).distillation is None
    assert loss_for(job, np.array([3, 0, 0])).distillation.classes.tolist() == [False, True, True]


def test_fedlc_without_margins_is_plain_cross_entropy():
    loss = loss_for(
        LocalJob(objective="fedlc", objective_options=(("tau", 0.0),)), np.array([3, 9])
    )
    assert loss.shift.tolist() == [0.0, 0.0]


def test_counts_alone_decide_the_margins_of_fedlc():
    few, many = loss_for(LocalJob(objective="fedlc"), np.array([1, 10_000, 0])).shift[:2]
    assert (few, many) == (-1.0, pytest.approx(-0.1))


def test_one_example_is_a_whole_label_mix():
    assert OBJECTIVES["fedvls"](np.array([1, 0, 0])).shift[0] == pytest.approx(0.0, abs=1e-8)
