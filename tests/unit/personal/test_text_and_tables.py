"""Tables and texts from file to fairness: they train, test texts stay out of the vocabulary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedskew import run
from fedskew.data import build_shards, from_arrays
from fedskew.data.text import UNKNOWN, fit_vocabulary
from fedskew.errors import RecipeError
from fedskew.experiment.world import factory_of
from fedskew.recipe import resolve

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "data"
needs_shared = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER} is not there")
SMALL = {"run.rounds": 2, "run.clients_per_round": 3, "local.epochs": 1, "data.folder": str(FOLDER)}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDSKEW_DATA", str(tmp_path_factory.mktemp("cache")))
        yield


@needs_shared
@pytest.mark.parametrize(
    ("name", "model", "clients", "chance"),
    [
        ("acsincome", "logistic", 40, 0.5),
        ("serengeti", "mlp500", 20, 1 / 11),
        ("amazon", "embedding", 10, 0.35),
    ],
)
def test_one_model_per_cluster_from_file_to_fairness(name, model, clients, chance):
    settings = {
        **SMALL,
        "data.use": name,
        "data.clients": clients,
        "clustering.count": 2,
        "partition.alpha": 1.0,
    }
    settings["selection.fraction"] = 0.3
    if name == "amazon":  # enough steps to leave the largest class (0.32) behind
        settings |= {
            "local.lr": 0.01,
            "local.epochs": 2,
            "partition.alpha": 100.0,
            "selection.fraction": 1.0,
        }
    result = run("clust_psi_pfl", settings=settings, workers=1)
    assert result.recipe["model"]["use"] == model
    assert len(result.models) == 2
    figures = result.summary()["client_accuracy"]
    assert figures["weighted"] > chance
    assert figures["clients"] + figures["excluded"] == clients


@needs_shared
def test_tweets_train():
    settings = {
        **SMALL,
        "data.use": "sent140",
        "data.clients": 200,
        "local.optimizer": "adam",
        "local.lr": 0.005,
    }
    result = run(
        "fedavg", settings={**settings, "partition.alpha": 5.0, "model.dropout": 0.0}, workers=1
    )
    assert result.recipe["model"]["use"] == "lstm"
    assert result.layout.num_weights == 12_480 + 22
    assert 0.4 < result.summary()["final_accuracy"] < 1
    assert (
        result.summary()["client_accuracy"]["clients"]
        + result.summary()["client_accuracy"]["excluded"]
        == 200
    )


def numbered(seed=0):
    """40 texts of 6 words; word 2 is in every text, words 3.. are rare."""
    rng = np.random.default_rng(seed)
    x = rng.integers(3, 60, size=(40, 6)).astype(np.int32)
    x[:, 0] = 2
    return from_arrays(x, np.arange(40) % 2, vocab_size=10, words=60)


def test_the_vocabulary_is_that_of_the_training_rows():
    data = numbered()
    shards = build_shards(data, clients=4, partition="iid", client_test="split", seed=1)
    train = data.x[shards.train.order]
    counts = np.bincount(train.ravel(), minlength=60)
    wanted = sorted(range(2, 60), key=lambda w: (-counts[w], w))[:8]
    recoded = np.full(60, UNKNOWN)
    recoded[wanted] = 2 + np.arange(8)
    assert np.array_equal(shards.x, recoded[data.x])
    assert shards.x_test is shards.x
    assert shards.x.max() == 9


def test_test_rows_have_no_say_in_it():
    """Changing every word of every test text leaves the training texts as they were."""
    data = numbered()
    before = build_shards(data, clients=4, partition="iid", client_test="split", seed=1)
    x = np.array(data.x)
    x[before.test.order] = 59
    after = build_shards(
        replace(data, x=x), clients=4, partition="iid", client_test="split", seed=1
    )
    assert np.array_equal(before.test.order, after.test.order)
    assert np.array_equal(before.x[before.train.order], after.x[after.train.order])


def test_fewer_words_than_places():
    table = fit_vocabulary(np.array([[2, 2, 0]]), np.array([0]), 4, 10)
    assert table.tolist() == [0, 2 - 1, 2, 1]


@pytest.mark.parametrize(
    ("model", "options"), [("embedding", {}), ("lstm", {"embedding": "trainable"}), ("lstm", {})]
)
def test_a_vocabulary_larger_than_memory_is_refused_before_anything_is_built(model, options):
    data = numbered()
    resolved = resolve({"model": {"use": model, "vocab": 10**11, **options}})
    with pytest.raises(RecipeError, match=r"vocab x width = .* needs .* GB of memory"):
        factory_of(resolved, data)()


def test_a_model_with_too_few_words_is_refused():
    resolved = resolve({"model": {"use": "embedding", "vocab": 9}})
    with pytest.raises(
        RecipeError, match=r"model\.vocab: 9 words, but the texts of custom are in 10"
    ):
        factory_of(resolved, numbered())


def test_a_label_nobody_trains_on_is_tested_and_wrong():
    """Class 2 exists only in the official test set: no cluster ever sees it, nothing fails, and
    nobody is dealt its rows.
    """
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(120, 3)).astype(np.float32), np.arange(120) % 2
    data = from_arrays(x, y, x[:30], np.arange(30) % 3, num_classes=3)
    settings = {
        "run.rounds": 1,
        "data.clients": 6,
        "model.use": "logistic",
        "clustering.count": 2,
        "partition.alpha": 1.0,
    }
    result = run("clust_psi_pfl", data=data, settings=settings, workers=1)
    assert sum(result.clients["test_examples"]) == 20


def test_a_client_tested_on_a_label_it_never_saw():
    """Client 0 trains on class 0 only; one of its four test rows is of class 1: wrong, in its
    accuracy and in AD.
    """
    from fedskew.accounting.fairness import fairness
    from fedskew.experiment.world import store_of
    from fedskew.models import build
    from fedskew.runtime.local.runtime import LocalRuntime
    from fedskew.types import LocalJob, ScoreOrder, TrainOrder

    x, owners = np.ones((40, 2), np.float32), np.repeat([0, 1], 20)
    from fedskew.data import from_client_ids

    shards = build_shards(
        from_arrays(x, owners, num_classes=2),
        clients=2,
        partition=lambda pool, clients, rng: from_client_ids(owners),
        client_test="split",
    )
    labels = np.array(shards.y_test)
    labels[shards.test.indices(0)[0]] = 1
    with LocalRuntime(
        replace(store_of(shards), y_test=labels), lambda: build("logistic", (2,), 2), workers=1
    ) as runtime:
        model, job = runtime.initial(0)[None], LocalJob(lr=0.5, epochs=5)
        trained = runtime.train(TrainOrder([0, 1], model, [0, 0], job, seed=0, round=1))
        scores = runtime.score(ScoreOrder([0, 1], trained.params, [0, 1], "test"))
    assert scores.accuracy.tolist() == [0.75, 1.0]
    assert fairness(scores.accuracy, scores.num_examples).ad == pytest.approx(0.125)
