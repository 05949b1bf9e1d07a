"""FedCor: the likelihood and its slope, the choice against the K x K algebra, and the order of
events of the authors' code.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedskew.accounting.traffic import total_bytes
from fedskew.errors import RecipeError
from fedskew.loop.federation import run, settle
from fedskew.recipe import method_of, resolve
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.selection import loss_process
from fedskew.selection.fedcor import FedCor
from fedskew.selection.loss_process import (
    _patterns,
    fit,
    gradient,
    log_likelihood,
    most_informative,
    standardise,
)
from fedskew.types import Answer, AskLoss, AskTrial, Population, Scores, View

NOISE = 0.1


def instance(seed, clients=7, rounds=5, dimension=3, missing=0.3):
    rng = np.random.default_rng(seed)
    residuals = rng.normal(size=(rounds, clients))
    residuals[rng.random(residuals.shape) < missing] = np.nan
    return rng.normal(size=(dimension, clients)), residuals, rng.uniform(0.2, 1, rounds)


# ---------------------------------------------------------------- the Gaussian process


@pytest.mark.parametrize("clients", [1, 2, 3, 9])  # fewer and more than dimensions
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_likelihood_is_that_of_the_full_covariance(clients, missing):
    embedding, residuals, weights = instance(clients, clients, missing=missing)
    covariance = embedding.T @ embedding + NOISE**2 * np.eye(clients)
    expected = 0.0
    for row, weight in zip(residuals, weights, strict=True):
        seen = np.isfinite(row)
        if seen.any():
            density = multivariate_normal(
                np.zeros(seen.sum()), covariance[np.ix_(seen, seen)]
            ).logpdf(row[seen])
            expected += weight * (density + seen.sum() / 2 * np.log(2 * np.pi))
    assert log_likelihood(embedding, residuals, weights, noise=NOISE) == pytest.approx(
        expected, rel=1e-9
    )


@pytest.mark.parametrize("clients", [1, 2, 9])
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_slope_is_that_of_finite_differences(clients, missing):
    embedding, residuals, weights = instance(10 + clients, clients, missing=missing)
    slope = gradient(embedding, list(_patterns(residuals, weights)), noise=NOISE)
    numeric = np.zeros_like(embedding)
    for place in np.ndindex(*embedding.shape):
        ahead, behind = embedding.copy(), embedding.copy()
        ahead[place] += 1e-5
        behind[place] -= 1e-5
        values = [log_likelihood(at, residuals, weights, noise=NOISE) for at in (ahead, behind)]
        numeric[place] = (values[0] - values[1]) / 2e-5
    assert np.allclose(slope, numeric, rtol=1e-5, atol=1e-5 * np.abs(slope).max())


def test_fit_finds_the_covariance_the_changes_were_drawn_from():
    """600 draws around two groups: correlations near 0.9 (within 0.1) inside, 0 between them."""
    rng = np.random.default_rng(0)
    truth = 0.9 * np.kron(np.eye(2), np.ones((3, 3))) + 0.1 * np.eye(6)
    changes = rng.multivariate_normal(np.zeros(6), truth, 600)
    residuals = standardise(changes, np.ones(600), centre=True)
    start = rng.normal(size=(6, 6)) / np.sqrt(6)
    found = fit(start, residuals, np.ones(600), noise=0.1, steps=800, lr=0.01)
    covariance = found.T @ found + 0.01 * np.eye(6)
    scale = np.sqrt(np.diagonal(covariance))
    assert np.abs(covariance / scale / scale[:, None] - truth).max() < 0.1
    before, after = (log_likelihood(x, residuals, np.ones(600), noise=0.1) for x in (start, found))
    assert after > before


def test_fit_goes_the_way_of_torch_on_the_full_covariance():
    """Automatic differentiation of the K x K likelihood and torch's Adam, as the authors do it."""
    torch = pytest.importorskip("torch")
    embedding, residuals, weights = instance(4, clients=8, missing=0.0)
    located = torch.tensor(embedding, requires_grad=True)
    adam = torch.optim.Adam([located], lr=0.01)
    for _ in range(60):
        adam.zero_grad()
        covariance = located.T @ located + NOISE**2 * torch.eye(8, dtype=torch.float64)
        normal = torch.distributions.MultivariateNormal(
            torch.zeros(8, dtype=torch.float64), covariance
        )
        (-(torch.tensor(weights) * normal.log_prob(torch.tensor(residuals))).sum()).backward()
        adam.step()
    ours = fit(embedding, residuals, weights, noise=NOISE, steps=60, lr=0.01)
    assert np.abs(ours - located.detach().numpy()).max() < 1e-6
    assert np.abs(ours - embedding).max() > 0.1


def test_a_client_never_seen_keeps_its_place():
    embedding, residuals, weights = instance(1, missing=0.0)
    residuals[:, 2] = np.nan
    moved = fit(embedding, residuals, weights, noise=NOISE, steps=5, lr=0.01)
    assert np.array_equal(moved[:, 2], embedding[:, 2])
    assert (moved[:, [0, 1, 3, 4, 5, 6]] != embedding[:, [0, 1, 3, 4, 5, 6]]).all()


def test_standardised_changes_have_weighted_mean_zero_and_spread_one():
    changes, weights = np.random.default_rng(2).normal(3, 5, (6, 4)), np.linspace(0.2, 1, 6)
    changes[0, 1] = np.nan
    scaled = standardise(changes, weights, centre=True)
    seen = np.isfinite(changes)
    assert np.allclose(np.nansum(weights[:, None] * scaled, axis=0), 0)
    assert np.nansum(weights[:, None] * scaled**2) / (
        weights[:, None] * seen
    ).sum() == pytest.approx(1)
    assert np.isnan(scaled[0, 1])
    assert standardise(changes[:1], weights[:1], centre=True) is None  # one change is its own mean
    assert standardise(np.full((3, 2), 7.0), np.ones(3), centre=True) is None
    assert standardise(changes[:1], weights[:1], centre=False) is not None


def test_a_covariance_that_cholesky_refuses_gets_jitter():
    embedding = np.full((3, 4), 1e9)  # A = 4e18 everywhere: the noise is lost in rounding
    solved, factor = loss_process._solve(embedding, 1e-3)
    assert np.isfinite(solved).all()
    assert (np.diagonal(factor) > 0).all()


# ---------------------------------------------------------------- the choice


def chosen_by_full_covariance(embedding, share, discount, available, m, everyone):
    """docs/methods.md 4.5 literally: argmax a_k Σ_i p_i Σ_ik / sqrt(Σ_kk).

    Then Σ <- Σ - Σ[:,k] Σ[k,:] / Σ_kk.
    """
    covariance = embedding.T @ embedding + NOISE**2 * np.eye(len(share))
    left, chosen = list(np.flatnonzero(available)), []
    for _ in range(m):
        counted = np.arange(len(share)) if everyone else np.array(left)
        scores = [
            discount[k] * (share[counted] @ covariance[counted, k]) / np.sqrt(covariance[k, k])
            for k in left
        ]
        best = left[int(np.argmax(scores))]
        covariance = (
            covariance - np.outer(covariance[:, best], covariance[best]) / covariance[best, best]
        )
        chosen.append(int(best))
        left.remove(best)
    return chosen


@pytest.mark.parametrize("everyone", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_choice_is_that_of_the_full_covariance(seed, everyone):
    rng = np.random.default_rng(seed)
    clients = int(rng.integers(4, 15))
    embedding, share = rng.normal(size=(5, clients)), rng.dirichlet(np.ones(clients))
    discount, available = rng.uniform(0.5, 1, clients), rng.random(clients) < 0.7
    available[0] = True
    m = int(rng.integers(1, available.sum() + 1))
    counted = np.ones(clients, bool) if everyone else available
    found = most_informative(
        embedding, share, discount, np.flatnonzero(available), counted, m, noise=NOISE
    )
    assert found.tolist() == chosen_by_full_covariance(
        embedding, share, discount, available, m, everyone
    )


# ---------------------------------------------------------------- the order of events


def drive(losses, trials=None, *, m=2, available=None, seed=0, sizes=None, **options):
    """Play fedcor on given losses (T, K) of the model before every round.

    [(what it asked, whom it chose, memory)]
    """
    rounds, clients = losses.shape
    memory, played = {}, []
    for round in range(1, rounds + 1):
        answers, asks = (), []
        there = np.ones(clients, bool) if available is None else available[round - 1]
        while True:
            view = View(
                round=round,
                budget=m,
                population=Population(np.full(clients, 10) if sizes is None else sizes),
                available=there,
                loss=np.full(clients, np.nan),
                times_selected=np.zeros(clients),
                last_selected=np.zeros(clients),
                answers=answers,
            )
            chosen, memory = FedCor(**options).choose(
                memory, view, np.random.default_rng([seed, round, len(asks)])
            )
            if not isinstance(chosen, AskLoss | AskTrial):
                break
            asks.append(chosen)
            values = (
                losses[round - 1][chosen.clients]
                if isinstance(chosen, AskLoss)
                else trials[round - 1]
            )
            answers = (*answers, Answer(chosen, values))
        played.append((asks, chosen.tolist(), memory))
    return played


def two_blocks(seed, rounds, clients=10, noise=0.05):
    """Losses of two groups (even and odd clients): together within a group, else independent."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(rounds, 2))[:, np.arange(clients) % 2] + noise * rng.normal(
        size=(rounds, clients)
    )
    return 100 + np.cumsum(steps, axis=0)


@pytest.mark.parametrize("seed", range(15))
def test_two_blocks_give_one_client_of_each(seed):
    """docs/methods.md 4.5 sanity: uniform selection would do so in all of 15 cases with probability
    1e-4.

    In one case it would with probability 5/9.
    """
    *_, (_, chosen, _) = drive(two_blocks(seed, 12), warm_up=10, first_steps=300, seed=seed)
    assert sorted(i % 2 for i in chosen) == [0, 1]


def test_asks_follow_the_authors_code():
    """W_u = 2, every 3: epochs 0..2 are warm-up, the fit is due before epoch 3, trials after
    epochs 3, 6 and 9.
    """
    losses = two_blocks(0, 11)
    played = drive(
        losses, losses + 1 + two_blocks(1, 11) / 100, warm_up=2, every=3, first_steps=5, steps=2
    )
    kinds = [[type(ask).__name__ for ask in asks] for asks, _, _ in played]
    both = ["AskLoss", "AskTrial"]
    assert kinds == [["AskLoss"]] * 4 + [both, [], [], both, [], [], both]
    assert all(
        len(ask.clients) == 10 for asks, _, _ in played for ask in asks if isinstance(ask, AskLoss)
    )
    assert all(
        len(ask.clients) == 2 for asks, _, _ in played for ask in asks if isinstance(ask, AskTrial)
    )
    ready = [memory["ready"] for _, _, memory in played]
    assert ready == [False] * 3 + [True] * 8
    assert played[-1][2]["rounds"].tolist() == [0, 1, 2, 3, 6, 9]


def test_history_holds_the_changes_and_forgets_old_ones():
    losses, trials = two_blocks(0, 11), two_blocks(1, 11)
    memory = drive(losses, trials, warm_up=2, every=3, forget=6, first_steps=1, steps=1)[-1][2]
    assert memory["rounds"].tolist() == [3, 6, 9]
    assert np.allclose(memory["history"], [trials[t] - losses[t] for t in (4, 7, 10)])
    memory = drive(losses[:4], warm_up=2, first_steps=1)[-1][2]
    assert np.allclose(memory["history"], np.diff(losses[:4], axis=0))


def test_chosen_clients_are_discounted_until_the_next_throw_away_round():
    losses = two_blocks(0, 9)
    played = drive(
        losses, losses + two_blocks(1, 9) / 10, warm_up=1, every=4, beta=0.5, first_steps=5, steps=2
    )
    discounts = [memory.get("discount") for _, _, memory in played]
    assert discounts[:2] == [None, None]
    expected = np.ones(10)
    for number, (asks, chosen, memory) in enumerate(played[2:], start=2):
        expected = np.ones(10) if len(asks) == 2 else expected
        expected[chosen] *= 0.5
        assert np.array_equal(memory["discount"], expected), number
    assert [len(asks) for asks, _, _ in played] == [1, 1, 1, 0, 0, 2, 0, 0, 0]


def test_a_strong_discount_keeps_the_choice_moving():
    played = drive(two_blocks(0, 12), warm_up=5, every=100, beta=0.01, first_steps=100)
    assert len({i for _, chosen, _ in played[6:] for i in chosen}) > 8
    still = drive(two_blocks(0, 12), warm_up=5, every=100, beta=1.0, first_steps=100)
    assert len({tuple(chosen) for _, chosen, _ in still[6:]}) == 1


def test_large_clients_count_more():
    """Two independent clients and one who is alone but large: size decides who is taken first."""
    losses = 100 + np.cumsum(np.random.default_rng(0).normal(size=(40, 3)), axis=0)
    for big in range(3):
        sizes = np.where(np.arange(3) == big, 1000, 10)
        *_, (_, chosen, _) = drive(losses, m=1, sizes=sizes, warm_up=38, first_steps=300)
        assert chosen == [big]


def test_old_changes_fade():
    """At first even clients move together, and odd ones; later the first half does. gamma says
    how long the old groups last.
    """
    rng = np.random.default_rng(0)
    groups = [np.arange(8) % 2] * 50 + [np.arange(8) // 4] * 10
    steps = np.array([rng.normal(size=2)[group] for group in groups]) + 0.1 * rng.normal(
        size=(60, 8)
    )
    losses = 100 + np.vstack([np.zeros(8), np.cumsum(steps, axis=0)])
    for gamma, alike in ((1.0, 6), (0.5, 1)):  # whom client 0 resembles: 6 is even, 1 of its half
        *_, (_, _, memory) = drive(losses, warm_up=59, first_steps=300, gamma=gamma)
        near = memory["embedding"].T @ memory["embedding"][:, 0]
        assert near[alike] > near[7 - alike] + 0.3, gamma


def test_warm_up_goes_on_while_nothing_is_known():
    nothing = np.full((8, 5), np.nan)
    played = drive(nothing, warm_up=2, first_steps=1)
    assert [len(asks) for asks, _, _ in played] == [1] * 8
    assert all(len(set(chosen)) == 2 for _, chosen, _ in played)
    assert not played[-1][2]["ready"]
    flat = drive(np.ones((8, 5)), warm_up=2, first_steps=1)
    assert not flat[-1][2]["ready"]


def test_clients_that_are_away_are_neither_asked_nor_chosen_nor_filled_in():
    available = np.random.default_rng(0).random((10, 10)) < 0.6
    available[4] = False
    played = drive(
        two_blocks(0, 10),
        two_blocks(1, 10),
        available=available,
        warm_up=5,
        every=2,
        first_steps=5,
        steps=2,
    )
    for there, (asks, chosen, _) in zip(available, played, strict=True):
        assert all(there[ask.clients].all() for ask in asks)
        assert there[chosen].all()
        assert len(chosen) == min(2, there.sum())
    seen = np.isfinite(played[-1][2]["history"][0])
    assert np.array_equal(seen, available[0] & available[1])


def test_a_mean_of_zero_is_trained_in_every_warm_up_round():
    played = drive(two_blocks(0, 4), warm_up=3, mean="zero")
    assert ["embedding" in memory for _, _, memory in played] == [False, True, True, True]
    played = drive(two_blocks(0, 4), warm_up=3)
    assert ["embedding" in memory for _, _, memory in played] == [False] * 4


@pytest.mark.parametrize(
    "option", [{"every": 0}, {"dimension": 0}, {"noise": 0.0}, {"gamma": 0.0}, {"gamma": 1.1}]
)
def test_options_out_of_range_are_refused(option):
    with pytest.raises(RecipeError, match="out of range"):
        drive(np.ones((1, 3)), **option)


def test_options_at_the_end_of_their_range_are_taken():
    FedCor(every=1, dimension=1, gamma=1.0)._check()


# ---------------------------------------------------------------- in the loop


class Blocks(ScriptedRuntime):
    """Losses of two blocks, one row a round; a throw-away round leads to the next row but one."""

    def __init__(self, losses):
        super().__init__(np.full((losses.shape[1], 2), 5))
        self._losses = losses

    def score(self, order):
        n = len(order.clients)
        row = self._losses[order.round + (n == self._losses.shape[1]) - 1]
        return Scores(row[order.clients] % 7, np.zeros(n), np.full(n, 10))


def test_traffic_is_that_of_the_table():
    """docs/methods.md 9.1: warm-up K models down and K losses up; then m models; a throw-away round
    on top every Δt rounds.
    """
    options = {"warm_up": 2, "every": 3, "first_steps": 5, "steps": 2}
    recipe = resolve(
        {
            "selection": {"use": "fedskew.selection.fedcor:FedCor", **options},
            "run": {"rounds": 6, "clients_per_round": 2},
        }
    )
    setting = settle(method_of(recipe), Blocks(two_blocks(0, 9)), 0)
    records = [record for _, record in run(setting)][1:]
    size, clients, m = setting.description.layout.bytes, 10, 2
    down = [total_bytes(record.transfers, "down") // size for record in records]
    up = [total_bytes(record.transfers, "up") for record in records]
    both = 2 * clients + m  # the present model and the trial's outcome go to everybody
    assert down == [clients] * 4 + [both, m]
    assert up == [m * size + 4 * clients] * 4 + [2 * m * size + 8 * clients, m * size]


def test_what_rounding_takes_away_is_not_less_than_the_noise():
    # client 1 is client 0 again, so large that its variance after 0 is rounded to 0
    embedding = np.array([[2.0**30, 2.0**30, 0.0]])
    everybody = np.arange(3)
    chosen = most_informative(
        embedding,
        np.array([0.25, 0.25, 0.5]),
        np.ones(3),
        everybody,
        np.ones(3, bool),
        2,
        noise=0.1,
    )
    assert chosen.tolist() == [0, 2]
