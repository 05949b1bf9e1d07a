"""Fed-CBS: chances as written, groups more balanced than chance, nothing overflows."""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.errors import RecipeError, RunError
from fedskew.selection.fed_cbs import draw_groups, fed_cbs, qcid
from fedskew.types import Population, Signal, View, bind


def view_of(counts, m, *, round=1, times=None):
    counts = np.asarray(counts, np.float64)
    sizes, clients = counts.sum(axis=1), len(counts)
    times = np.zeros(clients) if times is None else times
    signal = Signal(counts / sizes[:, None], sizes, "disclosed")
    return View(
        round,
        m,
        Population(sizes),
        np.ones(clients, bool),
        np.full(clients, np.nan),
        times,
        times,
        signal=signal,
    )


def frequency(counts, bonus, m, draws=20_000):
    counts = np.asarray(counts, np.float64)
    groups, _ = draw_groups(
        counts,
        counts.sum(axis=1),
        np.asarray(bonus, np.float64),
        m,
        draws,
        np.random.default_rng(0),
    )
    return groups


def test_the_first_client_by_hand():
    """QCID of (3, 1) is 2 (1/4)^2 = 1/8, of (1, 0) 1/2: chances 8 + 1 and 2 + 4."""
    groups = frequency([[3, 1], [1, 0]], [1.0, 4.0], 1)
    assert (groups[:, 0] == 0).mean() == pytest.approx(9 / 15, abs=0.015)


def test_the_second_client_by_hand():
    """After (1, 0): with (3, 1) QCID 2 (4/5 - 1/2)^2 = 0.18, with (0, 3) 2 (1/4 - 1/2)^2 =
    0.125; exponent 10 for the last.
    """
    counts = [[1, 0], [3, 1], [0, 3]]
    groups = frequency(counts, [1e9, 0, 0], 2)  # the bonus makes client 0 first
    assert (groups[:, 0] == 0).all()
    chances = np.array([0.18, 0.125]) ** -10
    assert (groups[:, 1] == 2).mean() == pytest.approx(chances[1] / chances.sum(), abs=0.006)


def test_little_used_clients_gain():
    """T = 1 + times chosen; at t = 100 the bonus sqrt(3 ln t / 2 T) is 2.63 for a new client and
    0.26 after 99 rounds.
    """
    counts, first = np.eye(2)[[0, 0]] * 10, np.zeros(2)
    for seed in range(1500):
        first[
            fed_cbs(
                view_of(counts, 1, round=100, times=[0, 99]),
                np.random.default_rng(seed),
                exploration=3.0,
                draws=1,
            )
        ] += 1
    chances = 2 + 3 * np.sqrt(3 * np.log(100) / (2 * np.array([1, 100])))
    assert first[0] / 1500 == pytest.approx(chances[0] / chances.sum(), abs=0.045)


def test_T_starts_at_one_and_counts_every_choice(monkeypatch):
    """The bonus lambda sqrt(3 ln t / (2 T_k)) that is handed to the draws."""
    seen = []

    def spy(counts, sizes, bonus, m, draws, rng):
        seen.append(bonus)
        return draw_groups(counts, sizes, bonus, m, draws, rng)

    monkeypatch.setitem(fed_cbs.__globals__, "draw_groups", spy)
    view = view_of(np.eye(4), 2, round=50, times=[0, 1, 2, 7])
    fed_cbs(view, np.random.default_rng(0), exploration=0.5)
    assert seen[0] == pytest.approx(0.5 * np.sqrt(1.5 * np.log(50) / np.array([1, 2, 3, 8])))


def test_more_balanced_than_uniform():
    rng = np.random.default_rng(0)
    chosen, random = [], []
    for seed in range(20):
        counts = rng.multinomial(100, np.full(10, 0.1), 30) * (rng.random((30, 10)) < 0.2) + 1.0
        chosen.append(qcid(counts, fed_cbs(view_of(counts, 6), np.random.default_rng(seed))))
        random.append(qcid(counts, rng.choice(30, 6, replace=False)))
    assert np.mean(chosen) < 0.5 * np.mean(random)


def test_the_best_of_several_draws():
    counts = np.random.default_rng(1).integers(1, 50, (20, 5)).astype(float)
    groups, worth = draw_groups(
        counts, counts.sum(axis=1), np.zeros(20), 4, 8, np.random.default_rng(3)
    )
    assert worth == pytest.approx([qcid(counts, group) for group in groups], abs=1e-12)
    best = fed_cbs(view_of(counts, 4), np.random.default_rng(3), draws=8)
    assert best.tolist() == groups[worth.argmin()].tolist()


def test_perfectly_balanced_clients_do_not_overflow():
    counts = np.vstack([np.full((6, 4), 5.0), np.eye(4) * 20])
    ids = fed_cbs(view_of(counts, 6), np.random.default_rng(0))
    assert sorted(ids.tolist()) == [0, 1, 2, 3, 4, 5]
    assert (
        len(set(fed_cbs(view_of(np.full((300, 4), 5.0), 300), np.random.default_rng(0)).tolist()))
        == 300
    )


def test_what_it_refuses():
    view = view_of(np.eye(3), 2)
    for options in ({"draws": 0}, {"exploration": -1.0}):
        with pytest.raises(RecipeError, match=f"selection.{next(iter(options))}"):
            fed_cbs(view, np.random.default_rng(0), **options)
    bare = View(
        1, 2, view.population, view.available, view.loss, view.times_selected, view.last_selected
    )
    with pytest.raises(RunError, match="selection fed_cbs: needs label proportions"):
        fed_cbs(bare, np.random.default_rng(0))
    assert set(bind("selection", fed_cbs, {}).needs()) == {"signal"}
