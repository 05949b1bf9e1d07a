"""The rows that need no federation: by hand where possible."""

from __future__ import annotations

import numpy as np
import pytest

from fedskew import run
from fedskew.data import build_shards, from_arrays, from_client_ids
from fedskew.errors import RunError
from fedskew.experiment import references
from fedskew.experiment.references import majority_class, reference_rows, sample_passes

SETTINGS = {
    "run.rounds": 4,
    "run.clients_per_round": 3,
    "data.client_test": "split",
    "model.use": "logistic",
    "local.lr": 0.5,
    "local.epochs": 2,
}


def separable(clients=6, n=50, seed=0):
    """One line separates the classes, but every client holds mostly one of them."""
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(clients), n)
    y = (rng.random(clients * n) < np.where(owners % 2, 0.9, 0.1)).astype(int)
    x = (rng.normal(size=(clients * n, 2)) + 2.5 * (2 * y[:, None] - 1)).astype(np.float32)
    return x, y, owners


@pytest.fixture(scope="module")
def played():
    x, y, owners = separable()
    return run("fedavg", data=(x, y), clients=owners, settings=SETTINGS, workers=1), (x, y), owners


def shards_of(x, y, x_test, y_test, owners):
    dataset = from_arrays(x, y, x_test, y_test, num_classes=3)
    return build_shards(
        dataset,
        clients=0,
        partition=lambda pool, clients, rng: from_client_ids(owners),
        client_test="matched",
    )


def test_majority_is_that_of_the_training_data():
    """Client 0 trains on 0, 0, 1 and is tested on one 0 and one 1; client 1 on 2, 2, 1."""
    y, owners = np.array([0, 0, 1, 2, 2, 1]), np.array([0, 0, 0, 1, 1, 1])
    y_test = np.array([0, 1, 1, 2])
    made = shards_of(np.zeros((6, 1), np.float32), y, np.zeros((4, 1), np.float32), y_test, owners)
    row = majority_class(made)
    assert row.accuracy.tolist() == [0.5, 0.5]
    assert row.test_examples.tolist() == [2, 2]


def test_a_client_without_tests_is_left_out_of_the_rows():
    y, owners = np.array([0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 2])
    made = shards_of(
        np.zeros((5, 1), np.float32), y, np.zeros((2, 1), np.float32), np.array([0, 1]), owners
    )
    row = majority_class(made)
    assert np.isnan(row.accuracy[2])
    assert (row.fairness.clients, row.fairness.excluded) == (2, 1)


def test_a_test_label_the_client_never_saw_counts_as_wrong():
    """An unseen label is no error: the client's rows of class 1 are all in its test set."""
    x = np.zeros((40, 1), np.float32)
    owners = np.repeat([0, 1], 20)
    y = np.where(owners == 0, 0, 1)
    dataset = from_arrays(x, y, num_classes=2)
    made = build_shards(
        dataset,
        clients=0,
        partition=lambda p, c, r: from_client_ids(owners),
        client_test="split",
        seed=0,
    )
    flipped = np.array(made.y_test)
    flipped[made.test.indices(0)[:1]] = 1
    from dataclasses import replace

    row = majority_class(replace(made, y_test=flipped))
    assert row.accuracy.tolist() == [0.75, 1.0]


def test_all_rows_of_a_run(played):
    result, data, owners = played
    rows = {row.name: row for row in reference_rows(result, data=data, clients=owners)}
    assert list(rows) == ["majority_class", "fine_tuned", "centralised"]
    assert 0.8 < rows["majority_class"].fairness.weighted < 0.97
    assert rows["centralised"].fairness.weighted > 0.97
    assert rows["fine_tuned"].fairness.weighted > 0.95
    for row in rows.values():
        assert row.test_examples.tolist() == result.clients["test_examples"]


def test_tuning_starts_from_the_global_model(played):
    """Without a step (learning rate 0) the tuned row is the global model itself."""
    result, data, owners = played
    from dataclasses import replace

    still = replace(
        result, recipe={**result.recipe, "local": {**result.recipe["local"], "lr": 0.0}}
    )
    row = reference_rows(still, names=("fine_tuned",), data=data, clients=owners)[0]
    assert row.accuracy.tolist() == pytest.approx(result.clients["accuracy"])


def test_tuning_turns_a_model_that_serves_nobody_into_one_that_serves_everybody():
    """Half of the clients call the classes by each other's name: no global model can be right,
    each tuned one is.
    """
    x, truth, owners = separable(clients=12)
    y = np.where(owners < 6, truth, 1 - truth)
    result = run(
        "fedavg",
        data=(x, y),
        clients=owners,
        settings={**SETTINGS, "run.clients_per_round": 12},
        workers=1,
    )
    (tuned,) = reference_rows(result, names=("fine_tuned",), data=(x, y), clients=owners)
    assert result.fairness.weighted < 0.75
    assert tuned.fairness.weighted > 0.95


def test_centralised_training_has_the_passes_of_the_federation(played, monkeypatch):
    result, data, owners = played
    given = []
    original = references.LocalRuntime.train

    def watched(self, order):
        given.append((list(order.clients), order.job.epochs, order.job.prox_mu))
        return original(self, order)

    monkeypatch.setattr(references.LocalRuntime, "train", watched)
    reference_rows(result, names=("centralised",), data=data, clients=owners)
    # one client that holds everything; see the next test for the four
    assert given == [([0], 4, 0.0)]


def test_sample_passes_are_counted(played):
    result, _, _ = played
    # epochs x rounds x half of equal clients
    assert sample_passes(result) == pytest.approx(2 * 4 * 3 / 6)


def test_wrong_requests(played):
    result, data, owners = played
    with pytest.raises(RunError, match="unknown rows"):
        reference_rows(result, names=("best",), data=data, clients=owners)
    alone = run(
        "local_only", data=data, clients=owners, settings={**SETTINGS, "run.rounds": 1}, workers=1
    )
    with pytest.raises(RunError, match="only a global model"):
        reference_rows(alone, names=("fine_tuned",), data=data, clients=owners)
