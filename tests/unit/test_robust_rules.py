"""Robust rules: by hand, against scipy and plain loops, and never FedAvg in disguise."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import scipy

from fedskew.aggregation import AGGREGATIONS
from fedskew.aggregation.centered_clipping import CenteredClipping
from fedskew.aggregation.clipped_mean import ClippedMean
from fedskew.aggregation.geometric_median import GeometricMedian
from fedskew.aggregation.krum import closest, krum, multi_krum
from fedskew.aggregation.mean import mean
from fedskew.aggregation.median import median
from fedskew.aggregation.trimmed_mean import trimmed_mean
from fedskew.errors import RecipeError
from fedskew.types import Ends, Layout, bind

LAYOUT = Layout.of(
    [("w", (3,), "weight"), ("running_mean", (1,), "buffer"), ("seen", (), "counter")]
)
MODEL = np.array([1.0, 2.0, 3.0, 0.5, 4.0], np.float32)
ROBUST = (
    "median",
    "trimmed_mean",
    "krum",
    "multi_krum",
    "geometric_median",
    "clipped_mean",
    "centered_clipping",
    "skew_aware",
)


def ends_of(rows, examples=None, **more):
    rows = np.asarray(rows, np.float32)
    n = len(rows)
    return Ends(MODEL + rows, examples or [10] * n, [5] * n, LAYOUT, np.arange(n), 20, **more)


def ends(*shifts, examples=None, **more):
    return ends_of([np.full(5, shift) for shift in shifts], examples, **more)


def random_ends(seed, n):
    return ends_of(np.random.default_rng(seed).normal(size=(n, 5)))


def merged(name, given, memory=None, **options):
    if name == "skew_aware" and given.rises is None:
        given = Ends(
            given.params, given.num_examples, given.steps, given.layout, given.clients, 20,
            rises=given.params[:, :3] - MODEL[:3],
        )  # fmt: skip
    return bind("aggregation", AGGREGATIONS[name], options).merge(memory or {}, MODEL, given)


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize("name", ROBUST)
def test_one_client_among_five_cannot_move_the_model_as_it_moves_the_mean(name):
    rng = np.random.default_rng(1)
    rows = np.array([1, 2, -1, 0, 0]) + 0.1 * rng.normal(size=(5, 5))
    honest = mean(MODEL, ends_of(rows))
    rows[3] *= 1000
    given = ends_of(rows, rises=np.tile([1.0, -0.5, -0.5], (5, 1)))
    assert np.abs(mean(MODEL, given) - honest).max() > 100
    assert np.abs(merged(name, given)[0] - honest)[:4].max() < 1.0, "it has become the mean"


@pytest.mark.parametrize("name", ROBUST)
def test_counters_and_buffers_are_guarded_like_weights(name):
    rows = np.ones((5, 5))
    rows[:, 4] = [3, 1e9, 2, 1, 3]
    rows[0, 3] = 1e6  # nothing but a false BatchNorm statistic
    moved, _ = merged(name, ends_of(rows))
    assert moved[4] == MODEL[4] + 3
    assert abs(moved[3] - MODEL[3]) < 10


@pytest.mark.parametrize("name", ROBUST)
def test_of_clients_that_agree_every_rule_says_what_they_say(name):
    moved, _ = merged(name, ends(0.5, 0.5, 0.5, 0.5))
    assert np.allclose(moved, MODEL + 0.5, atol=1e-6)


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_ends_are_no_trouble_and_nothing_given_is_changed(name, n):
    given = random_ends(n, n)
    before = given.params.copy()
    memory = {}
    for _ in range(2):
        moved, memory = merged(name, given, memory)
    assert np.isfinite(moved).all()
    assert np.array_equal(given.params, before)


@pytest.mark.parametrize("name", ROBUST)
def test_updates_of_1e30_leave_a_finite_model(name):
    rows = np.random.default_rng(0).normal(size=(5, 5))
    rows[2] = 1e30
    assert np.abs(merged(name, ends_of(rows))[0]).max() < 100


# ---------------------------------------------------------------- median and trimmed mean


def test_median_by_hand():
    assert median(MODEL, ends(1, 5, -3)).tolist() == [2, 3, 4, 1.5, 5]
    assert median(MODEL, ends(1, 5, -3, 2))[0] == MODEL[0] + 1.5


@pytest.mark.parametrize("n", range(1, 9))
def test_median_and_trimmed_mean_are_those_of_scipy(n):
    given = random_ends(n, n)
    found = median(MODEL, given)[:4]
    assert np.allclose(found, scipy.stats.quantile(given.params[:, :4], 0.5, axis=0), atol=1e-6)
    for trim in (0.0, 0.2, 0.4):
        expected = scipy.stats.trim_mean(given.params[:, :4], trim, axis=0)
        assert np.allclose(trimmed_mean(MODEL, given, trim=trim)[:4], expected, atol=1e-6)


def test_trimmed_mean_by_hand_and_what_it_refuses():
    given = ends(1, 2, 3, 100, -100)
    assert trimmed_mean(MODEL, given, trim=0.2)[0] == MODEL[0] + 2
    assert trimmed_mean(MODEL, given, trim=0.0)[0] == pytest.approx(MODEL[0] + 1.2)
    with pytest.raises(RecipeError, match="is not a share"):
        trimmed_mean(MODEL, given, trim=0.5)


# ---------------------------------------------------------------- Krum


def naive_krum(rows, f):
    """Scores by the definition: squared distances to the n - f - 2 nearest others."""
    scores = []
    for i, row in enumerate(rows):
        apart = sorted(sum((row - other) ** 2) for j, other in enumerate(rows) if j != i)
        scores.append(sum(apart[: max(1, len(rows) - f - 2)]))
    return scores


@pytest.mark.parametrize(("n", "f"), [(3, 0), (5, 1), (7, 2), (10, 2)])
def test_krum_is_the_end_with_the_lowest_naive_score(n, f):
    for seed in range(20):
        given = random_ends(seed, n)
        rows = given.params[:, :4].astype(np.float64)
        order = np.argsort(naive_krum(rows, f))
        assert closest(given.params[:, :4], 0.2).tolist() == order.tolist() or n == 7
        best = np.argsort(naive_krum(rows, f))
        assert np.allclose(krum(MODEL, given, hostile=f / n)[:4], rows[best[0]], atol=1e-5)
        several = multi_krum(MODEL, given, hostile=f / n)
        assert np.allclose(several[:4], rows[best[: n - f]].mean(axis=0), atol=1e-5)


def test_krum_by_hand():
    """n = 5, f = 1, two neighbours each: 0, 1, 2 and 3 score 5, 2, 2 and 5, so 1 comes first."""
    given = ends(0, 1, 2, 3, 50)
    assert krum(MODEL, given)[0] == MODEL[0] + 1
    assert multi_krum(MODEL, given)[0] == MODEL[0] + 1.5
    assert multi_krum(MODEL, given, keep=1)[0] == krum(MODEL, given)[0]
    with pytest.raises(RecipeError, match="not a share"):
        krum(MODEL, given, hostile=0.5)


# ---------------------------------------------------------------- geometric median


@pytest.mark.parametrize("seed", range(5))
def test_geometric_median_minimises_the_sum_of_distances(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 30, size=6).tolist()
    given = ends_of(rng.normal(size=(6, 5)), sizes)
    rows, shares = given.params[:, :4].astype(np.float64), np.array(sizes) / sum(sizes)

    def far(point):
        return float(shares @ np.linalg.norm(rows - point, axis=1))

    found = GeometricMedian().merge({}, MODEL, given)[0][:4]
    exact = {"maxiter": 5000, "xatol": 1e-7, "fatol": 1e-10}
    best = scipy.optimize.minimize(far, rows.mean(axis=0), method="Nelder-Mead", options=exact)
    assert far(found) <= best.fun + 1e-5


def test_geometric_median_goes_to_the_majority_whatever_the_others_send():
    """By hand: of points on a line the weighted median, here the 1 that holds 3 of 5 shares."""
    moved, _ = GeometricMedian().merge({}, MODEL, ends(1, 0, 1000, examples=[30, 10, 10]))
    assert np.allclose(moved[:4], MODEL[:4] + 1, atol=1e-3)
    lifted, _ = GeometricMedian().merge({}, MODEL, ends(1, 0, 2, examples=[10, 10, 30]))
    assert np.allclose(lifted[:4], MODEL[:4] + 2, atol=1e-3)
    alike, _ = GeometricMedian(weights="uniform").merge(
        {}, MODEL, ends(1, 0, 2, examples=[10, 10, 30])
    )
    assert np.allclose(alike[:4], MODEL[:4] + 1, atol=1e-3)


# ---------------------------------------------------------------- clipping


def test_clipped_mean_by_hand_over_two_rounds():
    """Updates of all-ones have length 2 (four floats): 2, 4 and 20 in round 1, median 4."""
    rule = ClippedMean()
    moved, memory = rule.merge({}, MODEL, ends(1, 2, 10))
    assert moved[0] == pytest.approx(MODEL[0] + (1 + 2 + 2) / 3)
    # round 2 sends 30 and 40; with what was seen before, the median of 2, 4, 20, 30, 40 is 20
    moved, memory = rule.merge(memory, MODEL, ends(15, -20))
    assert moved[0] == pytest.approx(MODEL[0] + (10 - 10) / 2)
    assert memory["lengths"] == pytest.approx([2, 4, 20, 30, 40])
    weighed, _ = rule.merge({}, MODEL, ends(1, 2, 10, examples=[10, 10, 20]))
    assert weighed[0] == pytest.approx(MODEL[0] + (1 + 2 + 2 * 2) / 4)


def test_clipped_mean_leaves_updates_of_usual_length_alone():
    given = random_ends(3, 5)
    moved, _ = ClippedMean(factor=10).merge({}, MODEL, given)
    assert np.allclose(moved[:4], mean(MODEL, given)[:4])


def test_a_window_of_lengths_never_cuts_a_round_in_two():
    _, memory = ClippedMean(window=2).merge({}, MODEL, ends(1, 2, 3, 4))
    assert len(memory["lengths"]) == 4


def test_centered_clipping_by_hand():
    """Radius 2 is an all-ones step of 1: from 0 the moves 1, 3 and -10 count as 1, 1, -1; in the
    second round everything is seen from the step before.
    """
    rule = CenteredClipping(radius=2.0)
    moved, memory = rule.merge({}, MODEL, ends(1, 3, -10))
    assert moved[0] == pytest.approx(MODEL[0] + 1 / 3)
    moved, _ = rule.merge(memory, MODEL, ends(1, 3, 0))
    assert moved[0] == pytest.approx(MODEL[0] + 1 / 3 + (2 / 3 + 1 - 1 / 3) / 3)
    twice, _ = CenteredClipping(radius=2.0, steps=2).merge({}, MODEL, ends(1, 3, -10))
    assert twice[0] == pytest.approx(MODEL[0] + 1 / 3 + (2 / 3 + 1 - 1) / 3)


def test_centered_clipping_with_a_wide_radius_is_the_plain_mean():
    given = random_ends(2, 4)
    moved, _ = CenteredClipping(radius=1e6).merge({}, MODEL, given)
    assert np.allclose(moved[:4], given.params[:, :4].mean(axis=0), atol=1e-5)
    chosen, _ = CenteredClipping().merge({}, MODEL, ends(1, 2, 10))
    assert chosen[0] == pytest.approx(MODEL[0] + 5 / 3), "radius 0 is the median distance, here 4"


def test_rules_tell_each_other_apart():
    first, given, found = random_ends(6, 6), random_ends(7, 6), {}
    rises = np.array([[2, -1, -1]] * 5 + [[1, 1, -2]])
    given = replace(given, rises=rises)
    for name in (*ROBUST, "mean"):
        _, memory = merged(name, first)
        found[name], _ = merged(name, given, memory)
    for one, other in combinations(found, 2):
        assert not np.allclose(found[one], found[other], atol=1e-4), (one, other)
