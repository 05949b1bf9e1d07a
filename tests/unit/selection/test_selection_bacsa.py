"""BACSA: every objective against a plain double loop over all sets, and what its options do."""

from __future__ import annotations

from itertools import combinations
from math import log, sqrt

import numpy as np
import pytest

from fedskew.errors import RecipeError, RunError
from fedskew.selection.bacsa import bacsa, channel_quality
from fedskew.types import Population, Signal, View, bind

CLIENTS, CLASSES, M = 9, 4, 3


def view_of(rows, *, m=M, round=30, times=None, sizes=None, snr=None, available=None):
    clients = len(rows)
    sizes = np.full(clients, 50) if sizes is None else np.asarray(sizes)
    return View(
        round=round,
        budget=m,
        population=Population(sizes, snr=snr),
        available=np.ones(clients, bool) if available is None else available,
        loss=np.full(clients, np.nan),
        times_selected=np.zeros(clients) if times is None else times,
        last_selected=np.zeros(clients),
        signal=Signal(rows, sizes, "estimated"),
    )


def drawn(seed):
    rng = np.random.default_rng(seed)
    rows, sizes = rng.dirichlet(np.full(CLASSES, 0.3), CLIENTS), rng.integers(10, 200, CLIENTS)
    return rows, sizes, rng.integers(1, 12, CLIENTS), 10 ** rng.uniform(0, 3, CLIENTS)


def imbalance(rows, group, nu, u):
    return sum((sum(nu[k] * rows[k][c] for k in group) - u[c]) ** 2 for c in range(len(u)))


def value(objective, group, rows, times, s, r, gamma, nu, u):
    """docs/methods.md 4.8, word by word."""
    m, classes = len(group), len(u)
    if objective == "group":
        fairness = gamma / m * sum(sqrt(times[k] / max(1, r - 1) / s[k]) for k in group)
    elif objective == "ucb":
        fairness = -gamma / m * sum(sqrt(3 * log(r) * s[k] / (2 * max(times[k], 1))) for k in group)
    else:
        fairness = gamma * sum(sqrt(3 * log(r) * 2 * times[k] / s[k]) for k in group)
    if objective != "literal":
        return classes * imbalance(rows, group, nu, u) + fairness
    mean = np.mean([rows[k] for k in group], axis=0)
    penalty = {k: gamma * sqrt(3 * log(r) * 2 * times[k] / s[k]) for k in group}
    return sum((rows[k][c] - mean[c]) ** 2 + penalty[k] for k in group for c in range(classes))


@pytest.mark.parametrize(
    "options", [{}, {"weights": "examples"}, {"target": "global"}, {"use_snr": True}]
)
@pytest.mark.parametrize("objective", ["group", "ucb", "penalty_raw", "literal"])
@pytest.mark.parametrize("seed", range(3))
def test_the_chosen_set_has_the_smallest_value(objective, seed, options):
    rows, sizes, times, snr = drawn(seed)
    gamma = 0.002 if objective in ("penalty_raw", "literal") else 0.2
    view = view_of(rows, times=times, sizes=sizes, snr=snr)
    s = np.clip(snr / np.median(snr), 0.1, 10) if options.get("use_snr") else np.ones(CLIENTS)
    u = (
        sizes @ rows / sizes.sum()
        if options.get("target") == "global"
        else np.full(CLASSES, 1 / CLASSES)
    )

    def worth(group):
        total = sum(sizes[k] for k in group)
        nu = {k: sizes[k] / total if options.get("weights") == "examples" else 1 / M for k in group}
        return value(objective, group, rows, times, s, view.round, gamma, nu, u)

    best = min(combinations(range(CLIENTS), M), key=worth)
    assert bacsa(
        view, np.random.default_rng(0), objective=objective, gamma=gamma, **options
    ).tolist() == list(best)


def test_balance_with_and_without_fairness_by_hand():
    rows = np.eye(2)[[0, 1, 0, 1, 0]]  # classes 0 1 0 1 0
    used = np.array([9, 9, 0, 4, 0])
    assert bacsa(view_of(rows, m=2, times=used), np.random.default_rng(0)).tolist() in (
        [2, 3],
        [3, 4],
    )
    # fairness alone takes the two clients never used, both of class 0
    assert bacsa(view_of(rows, m=2, times=used), np.random.default_rng(0), gamma=1e6).tolist() == [
        2,
        4,
    ]


def test_a_good_channel_is_used_more_often():
    rows, snr = np.eye(2)[[0, 0, 1, 1]], np.array([1.0, 100, 1, 100])
    view = view_of(rows, m=2, times=[5, 6, 5, 6], snr=snr)
    assert bacsa(view, np.random.default_rng(0)).tolist() == [0, 2]
    # one could divide the UCB bonus by the SNR: then [0, 2] again
    for objective in ("group", "ucb", "penalty_raw"):
        assert bacsa(
            view, np.random.default_rng(0), objective=objective, use_snr=True
        ).tolist() == [1, 3]


def test_snr_over_the_median_within_a_factor_of_ten():
    view = view_of(np.full((5, 2), 0.5), snr=np.array([1e-9, 2.0, 4.0, 1e9, np.nan]))
    found = channel_quality(view, np.arange(5))  # the median of the four known ones is 3
    assert found == pytest.approx([0.1, 2 / 3, 4 / 3, 10, 1])


def test_the_median_is_of_everybody_also_of_those_away():
    snr = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    view = view_of(np.full((5, 2), 0.5), snr=snr, available=np.array([1, 1, 0, 0, 0], bool))
    assert channel_quality(view, np.array([0, 1])) == pytest.approx([1 / 4, 2 / 4])


@pytest.mark.parametrize("snr", [None, np.full(4, np.nan)])
def test_snr_must_be_known(snr):
    view = view_of(np.full((4, 2), 0.5), snr=snr)
    with pytest.raises(
        RunError,
        match=r"selection bacsa: use_snr needs signal-to-noise ratios\. Set devices.snr_db",
    ):
        bacsa(view, np.random.default_rng(0), use_snr=True)


def test_zero_snr_everywhere_is_no_division_by_zero():
    view = view_of(np.eye(4), m=2, times=[3, 0, 3, 0], snr=np.zeros(4))
    assert bacsa(view, np.random.default_rng(0), use_snr=True).tolist() == [1, 3]


@pytest.mark.parametrize("gamma", [0.001, 0.1, 100.0])
def test_ucb_tries_everybody_first(gamma):
    rows, sizes, times, _ = drawn(1)
    fresh = [2, 5, 6, 8]
    times[fresh] = 0
    view = view_of(rows, m=4, times=times, sizes=sizes)
    assert bacsa(view, np.random.default_rng(0), objective="ucb", gamma=gamma).tolist() == fresh


def test_only_available_clients_and_their_fairness():
    rows, available = np.eye(2)[[0, 1, 0, 1, 0]], np.array([False, True, False, True, True])
    view = view_of(rows, m=2, times=[0, 7, 0, 1, 1], available=available)
    assert bacsa(view, np.random.default_rng(0)).tolist() == [3, 4]


def test_more_balanced_than_uniform():
    """The test that fails if the rule quietly becomes random selection."""
    rng = np.random.default_rng(0)
    chosen, random = [], []
    for seed in range(20):
        rows = np.random.default_rng(seed).dirichlet(np.full(10, 0.1), 20)
        view = view_of(rows, m=5, times=rng.integers(0, 5, 20))
        ids = bacsa(view, np.random.default_rng(0))
        chosen.append(np.square(rows[ids].mean(axis=0) - 0.1).sum())
        random.append(np.square(rows[rng.choice(20, 5, replace=False)].mean(axis=0) - 0.1).sum())
    assert np.mean(chosen) < 0.35 * np.mean(random)


def test_what_it_refuses():
    view = view_of(np.eye(4))
    with pytest.raises(RecipeError, match=r"selection.gamma: -1.0 is negative"):
        bacsa(view, np.random.default_rng(0), gamma=-1.0)
    bare = View(
        1, 2, view.population, view.available, view.loss, view.times_selected, view.last_selected
    )
    with pytest.raises(
        RunError, match=r"selection bacsa: needs label proportions\. Add \[signal\]"
    ):
        bacsa(bare, np.random.default_rng(0))
    assert set(bind("selection", bacsa, {}).needs()) == {"signal"}
