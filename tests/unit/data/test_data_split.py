"""Client test sets: split, matched, none; holdout; the scale of tables."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedskew.data import PARTITIONS, Dataset, build_shards, from_arrays, load
from fedskew.data.cache import open_cached, store, workspace
from fedskew.data.test_sets import largest_remainder, match
from fedskew.errors import DataError

RNG = np.random.default_rng(0)


def table(train: int = 400, test: int = 0, classes: int = 4) -> Dataset:
    x = RNG.normal(3.0, 2.0, (train + test, 5)).astype(np.float32)
    y = np.arange(train + test) % classes
    return from_arrays(
        x[:train], y[:train], x[train:], y[train:], columns={"site": np.arange(train) // 50}
    )


def test_auto_splits_without_and_matches_with_an_official_test_set() -> None:
    assert build_shards(table(), clients=4, partition="iid").client_test == "split"
    assert build_shards(table(test=80), clients=4, partition="iid").client_test == "matched"


def test_split_cuts_a_fifth_from_every_client() -> None:
    shards = build_shards(table(), clients=7, partition="dirichlet", options={"alpha": 1.0})
    assert shards.test is not None
    whole = shards.train.sizes + shards.test.sizes
    assert shards.test.sizes.tolist() == np.ceil(whole * 0.2).astype(int).tolist()
    both = np.concatenate([shards.train.order, shards.test.order])
    assert sorted(both.tolist()) == list(range(400))
    assert shards.central_test.tolist() == sorted(shards.test.order.tolist())
    assert shards.x_test is shards.x
    assert shards.label_counts.sum() == shards.train.sizes.sum()


def test_split_pools_the_official_test_set() -> None:
    data = table(test=100)
    shards = build_shards(data, clients=5, partition="iid", client_test="split")
    assert shards.test is not None
    assert len(shards.y) == 500
    assert (shards.x[400:] == data.x_test).all()
    assert (shards.y[400:] == data.y_test).all()
    assert shards.train.sizes.sum() + shards.test.sizes.sum() == 500


def test_pooling_a_cached_dataset_copies_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path))
    with workspace("custom") as space:
        store(table(test=1000), space, {})
    data = open_cached("custom")
    shards = build_shards(data, clients=5, partition="iid", client_test="split")
    assert np.shares_memory(shards.x, data.x)
    assert np.shares_memory(shards.x, data.x_test)
    assert np.shares_memory(shards.y, data.y_test)
    assert shards.x.shape == (1400, 5)


def test_adjacent_rows_in_the_wrong_order_are_not_taken_for_the_pool() -> None:
    whole = np.arange(40, dtype=np.float32).reshape(10, 4).copy()
    assert whole.base is None
    data = from_arrays(whole[5:], np.arange(5) % 2, whole[:5], np.arange(5) % 2)
    shards = build_shards(data, clients=2, partition="iid", client_test="split")
    assert shards.x[:5].tolist() == whole[5:].tolist()


def test_stratified_split_keeps_the_proportions_of_every_client() -> None:
    data = from_arrays(np.zeros((300, 1)), np.repeat([0, 1, 2], [150, 120, 30]))
    shards = build_shards(
        data, clients=3, partition="iid_stratified", stratified=True, client_test="split"
    )
    assert shards.test is not None
    assert shards.test.counts(data.y, 3).tolist() == [[10, 8, 2]] * 3


def test_a_client_of_one_row_keeps_it() -> None:
    shards = build_shards(table(train=12), clients=12, partition="iid")
    assert shards.train.sizes.tolist() == [1] * 12
    assert shards.untested == 12


def test_matched_gives_every_test_row_to_one_client_in_its_proportions() -> None:
    shards = build_shards(
        table(test=200), clients=5, partition="class_limited", options={"classes_per_client": 2}
    )
    assert shards.test is not None
    train, test = shards.label_counts, shards.test.counts(shards.y_test, 4)
    assert sorted(shards.test.order.tolist()) == list(range(200))
    assert (np.abs(test - train * (50 / train.sum(axis=0))) < 1).all()
    assert shards.central_test.tolist() == list(range(200))
    assert ((test > 0) <= (train > 0)).all()


def test_match_by_hand() -> None:
    """7 rows over 3:2:2 of 7 are exact; 4 over 1:1 are 2 each; untrained classes go to nobody."""
    labels = np.repeat([0, 1, 2], [7, 4, 5])
    dealt = match(labels, np.array([[3, 1, 0], [2, 1, 0], [2, 0, 0]]), np.random.default_rng(0))
    assert dealt.counts(labels, 3).tolist() == [[3, 2, 0], [2, 2, 0], [2, 0, 0]]
    assert dealt.report.dropped == 5


@pytest.mark.parametrize("total", [0, 1, 17, 1000])
def test_largest_remainder_is_within_one_of_the_share(total: int) -> None:
    weights = RNG.random(30)
    shares = weights / weights.sum() * total
    whole = largest_remainder(shares, total, np.random.default_rng(1))
    assert whole.sum() == total
    assert (np.abs(whole - shares) < 1).all()
    left = shares - np.floor(shares)
    up = whole > np.floor(shares)
    assert up.all() or not up.any() or left[up].min() >= left[~up].max()


def test_equal_remainders_are_ranked_at_random() -> None:
    winners = {
        int(largest_remainder(np.full(10, 0.1), 1, np.random.default_rng(s)).argmax())
        for s in range(50)
    }
    assert len(winners) > 5


def test_none_has_no_client_test_sets() -> None:
    shards = build_shards(table(test=40), clients=4, partition="iid", client_test="none")
    assert shards.test is None
    assert shards.untested == 4
    assert len(shards.central_test) == 40


def test_holdout_throws_a_share_of_every_clients_training_rows_away() -> None:
    """Paper 004's code: 80 % of 100 rows, then 80 % of those are trained on: 64 (docs/methods.md
    5).
    """
    plain = build_shards(table(), clients=4, partition="iid", seed=3)
    less = build_shards(table(), clients=4, partition="iid", seed=3, holdout=0.2)
    assert plain.train.sizes.tolist() == [80] * 4
    assert less.train.sizes.tolist() == [64] * 4
    assert set(less.train.order.tolist()) < set(plain.train.order.tolist())
    assert less.train.report.dropped == 64
    assert plain.test is not None
    assert less.test is not None
    assert plain.test.order.tolist() == less.test.order.tolist()


def test_a_table_is_standardised_with_training_rows_only() -> None:
    data = table()
    shards = build_shards(data, clients=4, partition="iid")
    assert shards.mean is not None
    assert shards.mean == pytest.approx(data.x[shards.train.order].mean(axis=0), rel=1e-5)
    fixed = from_arrays(data.x, data.y, mean=0.0, std=2.0)
    assert build_shards(fixed, clients=4, partition="iid").mean == 0.0


def test_same_seed_same_shards_and_the_partition_does_not_depend_on_the_test_sets() -> None:
    first, again, other = (
        build_shards(load("digits"), clients=10, options={"alpha": 1.0}, seed=s) for s in (5, 5, 6)
    )
    assert first.train.order.tolist() == again.train.order.tolist()
    assert first.train.order.tolist() != other.train.order.tolist()
    a, b = (
        build_shards(table(test=100), clients=4, client_test=how, options={"alpha": 1.0})
        for how in ("matched", "none")
    )
    assert a.train.order.tolist() == b.train.order.tolist()


def test_a_partition_may_be_a_function_and_natural_clients_keep_their_names() -> None:
    rule = partial(PARTITIONS["natural"], column="site")
    shards = build_shards(table(), clients=0, partition=rule)
    assert shards.clients == 8
    assert shards.train.names == tuple("01234567")
    assert shards.train.sizes.tolist() == [40] * 8


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"partition": "dirichlt"}, "Did you mean 'dirichlet'"),
        ({"client_test": "splitt"}, "Did you mean 'split'"),
        ({"client_test": "matched"}, "no official test set"),
        ({"test_fraction": 1.0}, "test_fraction = 1.0"),
        ({"holdout": -0.1}, "holdout = -0.1"),
    ],
)
def test_refusals(options: dict[str, object], what: str) -> None:
    with pytest.raises(DataError, match=what):
        build_shards(table(), clients=4, **options)  # type: ignore[arg-type]
