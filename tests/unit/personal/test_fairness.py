"""AD, SDAD, worst tenth, Jain, ECDF: small enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedskew import run
from fedskew.accounting.fairness import ecdf, ecdf_at, fairness, weighted_mean
from fedskew.errors import RunError


def test_the_oracle_of_methods_12():
    found = fairness([1.0, 0.5], [1, 1])
    assert (found.ad, found.sdad) == (0.25, 0.25)


def test_weights_are_test_examples_and_ad_counts_clients():
    found = fairness([0.9, 0.1], [90, 10])
    assert found.weighted == pytest.approx(0.82)
    assert found.ad == pytest.approx(0.5), "above 1 - weighted: every client counts alike"


def test_clients_without_test_examples_are_left_out_and_counted():
    found = fairness([0.8, np.nan, 0.6, np.nan], [5, 0, 15, 0])
    assert (found.clients, found.excluded) == (2, 2)
    assert found.weighted == pytest.approx(0.65)
    assert found.ad == pytest.approx(0.3)
    assert found.sdad == pytest.approx(0.1)
    nobody = fairness([np.nan], [0])
    assert (nobody.clients, nobody.excluded) == (0, 1)
    assert np.isnan(nobody.ad)


@pytest.mark.parametrize(("clients", "counted"), [(1, 1), (10, 1), (11, 2), (100, 10)])
def test_the_worst_tenth_is_rounded_up(clients, counted):
    accuracy = np.linspace(1, 0, clients) if clients > 1 else np.array([0.3])
    assert fairness(accuracy, np.ones(clients, int)).worst10 == pytest.approx(
        np.sort(accuracy)[:counted].mean()
    )


def test_jain_of_accuracies():
    assert fairness([1.0, 0.0, 0.0, 0.0], [1] * 4).jain == pytest.approx(0.25)
    assert fairness([0.7] * 4, [1] * 4).jain == pytest.approx(1.0)


def test_the_distribution_is_right_continuous():
    values, shares = ecdf([0.2, 0.2, 0.8, np.nan])
    assert values.tolist() == [0.2, 0.8]
    assert shares.tolist() == pytest.approx([2 / 3, 1.0])
    assert ecdf_at([0.2, 0.2, 0.8], [0.0, 0.2, 0.79, 0.8, 1.0]).tolist() == pytest.approx(
        [0, 2 / 3, 2 / 3, 1, 1]
    )
    assert ecdf([])[0].tolist() == []


def test_shapes_are_checked():
    with pytest.raises(RunError, match="one of each per client"):
        fairness([0.5], [1, 2])
    assert np.isnan(weighted_mean([], []))


def test_a_run_with_an_untested_client_says_so():
    """Client 2 owns one row: it trains on it and has nothing left to be tested on."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(41, 3)).astype(np.float32), np.arange(41) % 2
    owners = np.array([0] * 20 + [1] * 20 + [2])
    settings = {
        "run.rounds": 1,
        "run.clients_per_round": 3,
        "data.client_test": "split",
        "model.use": "logistic",
    }
    result = run("fedavg", data=(x, y), clients=owners, settings=settings, workers=1)
    assert result.summary()["client_accuracy"]["excluded"] == 1
    assert result.summary()["client_accuracy"]["clients"] == 2
    assert np.isnan(result.clients["accuracy"][2])
