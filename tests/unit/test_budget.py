"""A run with a budget ends when another round would not fit, its [finish] included, and goes on
from anywhere to the same end.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch")
from fedskew.errors import RecipeError
from fedskew.experiment.budget import Meter, Spent, spends
from fedskew.experiment.figures import final_accuracy
from fedskew.experiment.local import run
from fedskew.recipe import fingerprint, load, override, resolve

SMALL = {"partition.alpha": 0.1, "run.clients_per_round": 3, "run.evaluate_every": 4}
MANY = {**SMALL, "run.rounds": 60}


def play(recipe="fedavg", *, seed=0, **changes):
    settings = {**MANY, **{key.replace("__", "."): value for key, value in changes.items()}}
    return run(recipe, settings=settings, seed=seed, workers=1)


def seconds_of(played):
    return sum(spends(record).seconds for record in played.rounds)


def bytes_of(played):
    return sum(spends(record).bytes for record in played.rounds)


@pytest.fixture(scope="module")
def whole():
    return play()


def test_without_a_budget_every_round_is_played(whole):
    assert whole.rounds[-1].round == 60


@pytest.mark.parametrize("share", [0.1, 0.35, 0.8])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_ends_before_the_seconds_do_and_not_long_before(share, seed):
    every = play(seed=seed)
    allowed = share * seconds_of(every)
    played = play(seed=seed, run__max_seconds=allowed)
    dearest = max(spends(r).seconds for r in played.rounds)
    assert allowed - 2 * dearest < seconds_of(played) <= allowed
    rounds = played.rounds[-1].round
    assert [r.chains for r in played.rounds] == [r.chains for r in every.rounds[: rounds + 1]]


def test_it_ends_before_the_megabytes_do(whole):
    allowed = bytes_of(whole) / 60 * 20.5
    played = play(run__max_megabytes=allowed / 1e6)
    assert played.rounds[-1].round == 20
    assert bytes_of(played) <= allowed < bytes_of(played) * 21 / 20
    tight = play(run__max_megabytes=allowed / 1e6, run__max_seconds=seconds_of(whole) / 10)
    assert tight.rounds[-1].round < 10, "whichever budget ends first"


def test_its_last_round_is_tested_as_every_last_round_is(whole):
    played = play(run__max_seconds=seconds_of(whole) * 0.3)
    last = played.rounds[-1]
    assert last.round % 4, "or this shows nothing"
    assert (
        last.accuracy
        == run("fedavg", settings={**MANY, "run.rounds": last.round}, workers=1).rounds[-1].accuracy
    )


def test_one_round_is_played_whatever_the_budget():
    assert play(run__max_seconds=1e-6).rounds[-1].round == 1


def test_what_the_finish_costs_is_kept_back():
    """What calibrates is known beforehand; who is asked is not, so the slowest are assumed."""
    free = play("ccvr", finish__clients=5)
    allowed = seconds_of(free) * 0.5
    played = play("ccvr", finish__clients=5, run__max_seconds=allowed)
    kinds = [{t.kind for t in r.transfers} for r in played.rounds]
    assert ["features" in kind for kind in kinds] == [False] * (len(kinds) - 1) + [True]
    ending = spends(played.rounds[-1]).seconds
    assert allowed - ending - 2 * max(spends(r).seconds for r in played.rounds) < seconds_of(played)
    assert seconds_of(played) <= allowed
    assert played.summary()["final_accuracy"] == played.rounds[-1].accuracy
    assert final_accuracy(played) == played.rounds[-1].accuracy


class Killed(Exception):
    pass


@pytest.mark.parametrize("recipe", ["fedavg", "ccvr", "baton_fast"])
@pytest.mark.parametrize("at", ["before the end", "the last round", "the finish"])
def test_killed_and_resumed_it_ends_where_it_would_have_ended(tmp_path, recipe, at):
    settings = {**MANY, "run.max_seconds": 4.0, "run.checkpoint_seconds": 0.0}
    settings |= {} if recipe == "fedavg" else {"finish.clients": 4}
    undisturbed = run(recipe, settings=settings, workers=1, out=tmp_path / "whole")
    rounds = undisturbed.rounds[-1].round
    last = rounds - (recipe != "fedavg")
    kill = {"before the end": last - 2, "the last round": last, "the finish": rounds}[at]
    assert 3 < last < 59

    def until(record):
        if record.round == kill:
            raise Killed

    with pytest.raises(Killed):
        run(recipe, settings=settings, workers=1, out=tmp_path / "r", on_round=until)
    resumed = run(recipe, settings=settings, workers=1, out=tmp_path / "r", resume=True)
    assert np.array_equal(resumed.models, undisturbed.models)
    assert [spends(r) for r in resumed.rounds] == [spends(r) for r in undisturbed.rounds]
    assert resumed.summary()["final_accuracy"] == undisturbed.summary()["final_accuracy"]


def test_a_round_that_might_not_fit_is_not_begun():
    """Rounds of 5, 9 and 4 seconds: after them another one may take 9 again."""

    class Round:
        def __init__(self, round, seconds):
            self.round, self.transfers = round, ()
            self.cost = type("Cost", (), {"seconds": seconds})

    rounds = [Round(0, 2.0), Round(1, 5.0), Round(2, 9.0), Round(3, 4.0)]

    def end(seconds, ending=0.0):
        meter = Meter()
        for one in rounds:
            meter = meter.after(one, Spent(seconds), Spent(ending))
        return meter.end

    assert [end(s) for s in (11.0, 12.0, 24.0, 25.0, 28.0, 29.0)] == [1, 2, 2, 3, 3, None]
    assert end(29.0, 0.5) == 3


def test_a_second_act_has_no_budget():
    with pytest.raises(RecipeError, match=r"run.max_seconds.*fedconcat"):
        resolve(override(load("fedconcat"), {"run.max_seconds": 100.0}))
    with pytest.raises(RecipeError, match=r"run.max_megabytes.*fedconcat"):
        resolve(override(load("fedconcat"), {"run.max_megabytes": 100.0}))


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_budget_is_a_number(value):
    with pytest.raises(RecipeError, match="max_seconds"):
        resolve({"run": {"max_seconds": value}})


def test_recipes_without_a_budget_are_what_they_were():
    plain = resolve({})
    assert plain["run"]["max_seconds"] == plain["run"]["max_megabytes"] == 0.0
    assert fingerprint(plain) == fingerprint(resolve({"run": {"max_seconds": 0.0}}))
    assert fingerprint(plain) != fingerprint(resolve({"run": {"max_seconds": 9.0}}))
