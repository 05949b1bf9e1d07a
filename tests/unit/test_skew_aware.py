"""The rule that judges a client by its own labels: by hand, and against real attacks on digits."""

from __future__ import annotations

import numpy as np
import pytest

import fedskew
from fedskew.aggregation.mean import mean
from fedskew.aggregation.skew_aware import SkewAware, agreement
from fedskew.errors import RecipeError
from fedskew.recipe import load, override, resolve
from fedskew.types import Ends, Layout

LAYOUT = Layout.of([("w", (2,), "weight"), ("bias", (4,), "weight")])
MODEL = np.zeros(6, np.float32)
# three clients that hold label 0, 1 and both; a hostile one that holds label 3 and reverses it
RISES = np.array([[3, -1, -1, -1], [-1, 3, -1, -1], [1, 1, -1, -1], [1, 1, 1, -3]], float)
MIXES = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0, 1]], float)


def ends(rises=RISES, mixes=MIXES, examples=None, turns=()):
    rises = np.asarray(rises, float)
    n = len(rises)
    rows = np.concatenate([np.ones((n, 2)), rises], axis=1).astype(np.float32)
    return Ends(
        rows, examples or [10] * n, [5] * n, LAYOUT, np.arange(n), 20,
        turns=turns, mixes=mixes, rises=rises,
    )  # fmt: skip


def test_agreement_by_hand():
    """With labels the correlation; without, sum of cubes of the unit rises and a median cosine."""
    assert agreement(ends().params, ends())[:4] == pytest.approx([1, 1, 1, -1])
    unknown = agreement(ends().params, ends(mixes=None))
    cubes = np.array([24, 24, 0, -24]) / np.array([12, 12, 4, 12]) ** 1.5
    rows = ends().params / np.linalg.norm(ends().params, axis=1, keepdims=True)
    for k in range(4):
        others = [float(rows[k] @ rows[j]) for j in range(4) if j != k]
        assert unknown[k] == pytest.approx(cubes[k] + np.median(others), abs=1e-6)
    nobody = np.zeros_like(MIXES)
    assert agreement(ends().params, ends(mixes=nobody)) == pytest.approx(unknown)


def test_who_works_against_its_labels_is_turned_away_and_named():
    moved, memory = SkewAware().merge({}, MODEL, ends())
    assert np.allclose(moved, ends().params[:3].mean(axis=0))
    assert SkewAware().remarks(memory) == {3: "turned away: its update does not fit its labels"}
    assert not np.allclose(moved, mean(MODEL, ends()))


def test_an_honest_client_with_a_rare_label_is_heard():
    rises = np.array([[3, -1, -1, -1]] * 4 + [[-1, -1, -1, 3]], float)
    mixes = np.array([[1, 0, 0, 0]] * 4 + [[0, 0, 0, 1]], float)
    for known in (mixes, None):
        moved, memory = SkewAware().merge({}, MODEL, ends(rises, known))
        assert np.allclose(moved, mean(MODEL, ends(rises)))
        assert not len(memory["away"])


def test_too_long_updates_are_shortened_to_the_usual_length():
    given = ends(np.vstack([RISES[:3], 1000 * RISES[0]]), np.vstack([MIXES[:3], MIXES[:1]]))
    moved, memory = SkewAware().merge({}, MODEL, given)
    usual = np.median(memory["lengths"])
    rows = given.params.astype(float)
    rows[3] *= usual / np.linalg.norm(rows[3])
    assert np.allclose(moved, rows.mean(axis=0), atol=1e-5)
    weighed, _ = SkewAware().merge({}, MODEL, ends(examples=[30, 10, 10, 10]))
    assert np.allclose(weighed, [3, 1, 1, 0] @ ends().params / 5, atol=1e-6)


def test_one_strange_round_does_not_undo_many_good_ones_but_several_do():
    rule, memory = SkewAware(new=0.3), {}
    good, bad = ends(RISES[:2], MIXES[:2]), ends(-RISES[:2], MIXES[:2])
    for _ in range(5):
        _, memory = rule.merge(memory, MODEL, good)
    turned_away = []
    for _ in range(3):
        _, memory = rule.merge(memory, MODEL, bad)
        turned_away.append(len(memory["away"]))
    assert turned_away == [0, 2, 2]
    moved, _ = rule.merge(memory, MODEL, bad)
    assert np.array_equal(moved, MODEL), "nobody is left, so the model stays"


def test_chains_of_several_clients_are_judged_by_length_alone():
    given = ends(turns=((5,), (5,), (5,), (2, 3)))
    moved, memory = SkewAware().merge({}, MODEL, given)
    assert np.allclose(moved, mean(MODEL, given))
    assert "3" not in memory["agreed"]


# ---------------------------------------------------------------- on digits


def played(rule, seed=0, **settings):
    changes = {"partition.alpha": 0.1, "run.rounds": 15, "aggregation.use": rule, **settings}
    recipe = override(load("fedavg"), changes)
    return fedskew.run(recipe, seed=seed, workers=1)


FLIP = {"faults.hostile.share": 0.2, "faults.hostile.kind": "flip"}
HUGE = {"faults.hostile.share": 0.2, "faults.hostile.kind": "scale"}


def test_a_fifth_of_reversed_clients_break_the_mean_and_not_this():
    clean = played("mean").summary()["final_accuracy"]
    assert played("skew_aware").summary()["final_accuracy"] > clean - 0.01
    for attack in (FLIP, HUGE):
        assert played("mean", **attack).summary()["final_accuracy"] < 0.4
        attacked = played("skew_aware", **attack)
        assert attacked.summary()["final_accuracy"] > 0.8 * clean, "few rounds, one seed"
    hostile = {*played("skew_aware", **FLIP).facts["hostile"]["clients"]}
    labels = played("skew_aware", **FLIP, **{"signal.use": "histogram"})
    named = {client for record in labels.rounds for client in record.notes}
    assert named == hostile & {c for r in labels.rounds for c in r.loss}


@pytest.mark.parametrize(
    "changes",
    [
        {"objective.use": "logit_adjusted"},
        {"procedure.use": "fedsoft", "local.report_loss": "start"},
        {"model.head": "frozen"},
        {"aggregation.bucket": 2},
    ],
)
def test_what_hides_labels_in_updates_is_refused(changes):
    with pytest.raises(RecipeError):
        resolve(override(load("fedavg"), {"aggregation.use": "skew_aware", **changes}))
