"""The private release follows its stated mechanism, on absent classes too.

OpenDP cannot be seeded, so every statistical check here rejects a correct mechanism about once in a
billion runs (p < 1e-9), and a second check shows that the same test does reject a wrong scale (by 8
standard deviations or more).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedskew.errors import RecipeError
from fedskew.signal.private import _measurement, private, read_releases, release

FALSE_ALARM = 1e-9
ABSENT = [0, 2, 3]
COUNTS = np.array([0, 40, 0, 0, 7])


def fit_discrete_laplace(noise: np.ndarray, scale: float) -> float:
    """p-value of a chi-square test against P(k) = (1 - a) / (1 + a) a^|k|, a = exp(-1 / scale)."""
    edge = int(4 * scale)
    a = np.exp(-1 / scale)
    inner = (1 - a) / (1 + a) * a ** np.abs(np.arange(-edge, edge + 1))
    tail = (1 - inner.sum()) / 2
    found = np.bincount(
        np.clip(noise, -edge - 1, edge + 1).astype(int) + edge + 1, minlength=2 * edge + 3
    )
    return float(stats.chisquare(found, len(noise) * np.r_[tail, inner, tail]).pvalue)


@pytest.mark.parametrize(
    ("epsilon", "neighbours", "scale"),
    [(1.0, "add_remove", 1), (1.0, "replace_one", 2), (0.25, "add_remove", 4)],
)
def test_geometric_noise_on_absent_and_present_classes(
    epsilon: float, neighbours: str, scale: float
) -> None:
    measure = _measurement("geometric", epsilon, {"add_remove": 1, "replace_one": 2}[neighbours])
    noise = np.array(measure(np.tile(COUNTS, 4000).tolist())).reshape(-1, 5) - COUNTS
    for label in range(5):
        assert fit_discrete_laplace(noise[:, label], scale) > FALSE_ALARM, label
        assert fit_discrete_laplace(noise[:, label], 1.5 * scale) < FALSE_ALARM, label


def test_one_client_at_a_time_follows_the_same_law() -> None:
    noise = np.array([release(COUNTS, epsilon=0.5) for _ in range(1000)])[:, ABSENT].ravel()
    assert fit_discrete_laplace(noise, 2) > FALSE_ALARM
    assert fit_discrete_laplace(noise, 3) < FALSE_ALARM


@pytest.mark.parametrize(("neighbours", "scale"), [("add_remove", 2.0), ("replace_one", 4.0)])
def test_laplace_noise_on_absent_and_present_classes(neighbours: str, scale: float) -> None:
    measure = _measurement("laplace", 0.5, {"add_remove": 1, "replace_one": 2}[neighbours])
    noise = np.array(measure(np.tile(COUNTS, 3000).astype(float).tolist())).reshape(-1, 5) - COUNTS
    for label in range(5):
        assert stats.kstest(noise[:, label], stats.laplace(scale=scale).cdf).pvalue > FALSE_ALARM
        assert (
            stats.kstest(noise[:, label], stats.laplace(scale=3 * scale).cdf).pvalue < FALSE_ALARM
        )


def of_one_client(options: dict[str, Any]) -> np.ndarray:
    """The noise of 20,000 counts that one client releases."""
    return release(np.full(20_000, 500), **options) - 500


def of_many_clients(options: dict[str, Any]) -> np.ndarray:
    """The noise of 200 x 100 counts, read back from the signal: 500 is too far up to be clipped."""
    signal = private(np.full((200, 100), 500), **options)
    return (signal.rows * signal.num_examples[:, None] - 500).ravel()


# sensitivity / epsilon: one count changes by 1 under add_remove, two under replace_one
@pytest.mark.parametrize(("neighbours", "scale"), [("add_remove", 2.0), ("replace_one", 4.0)])
@pytest.mark.parametrize("noise_of", [of_one_client, of_many_clients])
@pytest.mark.parametrize("mechanism", ["geometric", "laplace"])
def test_what_is_released_has_the_promised_noise(
    mechanism: str, noise_of: Callable[..., np.ndarray], neighbours: str, scale: float
) -> None:
    """Through the doors that clients and servers use; half and double the noise are rejected."""
    noise = noise_of({"mechanism": mechanism, "epsilon": 0.5, "neighbours": neighbours})

    def fit(wanted: float) -> float:
        if mechanism == "laplace":
            return float(stats.kstest(noise, stats.laplace(scale=wanted).cdf).pvalue)
        return fit_discrete_laplace(np.rint(noise), wanted)

    assert fit(scale) > FALSE_ALARM
    for wrong in (scale / 2, scale / 1.5, 1.5 * scale, 2 * scale):
        assert fit(wrong) < FALSE_ALARM, wrong


def test_noise_of_clients_and_classes_is_independent() -> None:
    """The correlation of n pairs has standard deviation 1 / sqrt(n).

    6.2 of them is the false alarm rate above.
    """
    noise = np.array(_measurement("geometric", 1.0, 1)([0] * 40_000))
    for lag in (1, 4, 1000):
        assert abs(np.corrcoef(noise[:-lag], noise[lag:])[0, 1]) < 6.2 / np.sqrt(len(noise) - lag)


@pytest.mark.parametrize("mechanism", ["geometric", "laplace"])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.3, 1.0, 3.0, 7.7])
def test_the_stated_epsilon_is_never_exceeded(mechanism: str, epsilon: float) -> None:
    for sensitivity in (1, 2):
        measure = _measurement(mechanism, epsilon, sensitivity)
        spent = measure.map(float(sensitivity) if mechanism == "laplace" else sensitivity)
        assert epsilon * (1 - 1e-12) <= spent <= epsilon


def test_absent_classes_do_not_stay_zero() -> None:
    """The trap in HACCS's code. An absent class is released as non-zero with probability 0.54,
    here at least once in 200.
    """
    noisy = np.array([release([9, 0, 0], epsilon=1.0) for _ in range(200)])
    assert noisy[:, 1].any()
    assert noisy[:, 2].any()


def test_server_side_by_hand() -> None:
    signal = read_releases(
        np.array([[6.0, -3, 2], [-1, -2, 0], [9, 9, 9]]),
        epsilon=0.7,
        known=np.array([True, True, False]),
    )
    np.testing.assert_allclose(signal.rows, [[0.75, 0, 0.25], [1 / 3] * 3, [0, 0, 0]])
    assert signal.num_examples.tolist() == [8, 0, 0]
    assert signal.known.tolist() == [True, True, False]
    assert (signal.source, signal.epsilon) == ("private", 0.7)


@pytest.mark.parametrize("mechanism", ["geometric", "laplace"])
def test_rows_are_distributions_and_approach_the_truth_as_epsilon_grows(mechanism: str) -> None:
    counts = np.random.default_rng(0).integers(0, 60, (300, 6))
    truth = counts / counts.sum(axis=1, keepdims=True)
    errors = []
    for epsilon in (0.01, 0.1, 10.0):
        signal = private(counts, mechanism=mechanism, epsilon=epsilon)
        assert (signal.rows >= 0).all()
        np.testing.assert_allclose(signal.rows.sum(axis=1), 1, atol=1e-12)
        errors.append(np.abs(signal.rows - truth).sum(axis=1).mean() / 2)
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.01


def test_two_releases_differ() -> None:
    """No seed on purpose; 60 equal draws have probability below 1e-15."""
    counts = np.full((6, 10), 50)
    assert not np.array_equal(private(counts).rows, private(counts).rows)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), float("inf")])
def test_a_senseless_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(RecipeError, match="epsilon"):
        private([[1, 2]], epsilon=epsilon)


def test_without_opendp_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(RecipeError, match=r"fedskew\[private\]"):
        private([[1, 2]])


@pytest.mark.parametrize("mechanism", ["geometric", "laplace"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_no_more_noise_than_epsilon_asks_for(mechanism, epsilon):
    """Where sensitivity / epsilon is exact, the privacy is epsilon itself."""
    assert _measurement(mechanism, epsilon, 1).map(1.0 if mechanism == "laplace" else 1) == epsilon
