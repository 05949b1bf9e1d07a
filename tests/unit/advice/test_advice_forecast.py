"""Nearest federations, forecasts and their intervals, on a bank whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from made_bank import METHODS, TRAINING, make_bank, table_of, truth

from fedskew.advice.bank import bank_bytes, read_bank
from fedskew.advice.features import Training, features_of, group_skew
from fedskew.advice.forecast import Anchor, forecast
from fedskew.advice.judging import judge
from fedskew.advice.nearest import left_out, likeness, weights_of
from fedskew.errors import DataError


def test_features_do_not_see_clients_without_examples_or_labels_of_nobody():
    table = np.array([[5, 1, 0], [1, 5, 0], [0, 0, 0]])
    assert features_of(table, TRAINING) == features_of(table[:2, :2], TRAINING)


def test_a_group_of_everybody_has_no_skew_and_smaller_groups_have_more():
    table = table_of(np.random.default_rng(0), 40, 0.1)
    skews = [group_skew(table, m) for m in (1, 5, 20, 40)]
    assert skews == sorted(skews, reverse=True)
    assert skews[-1] == 0


def test_accuracy_between_levels_and_outside_of_them(bank):
    at = lambda rounds: bank.accuracy_at([rounds] * 4)[0]  # noqa: E731
    assert np.array_equal(at(8), bank.accuracy[0, :, 4])
    middle = (bank.accuracy[0, :, 4] + bank.accuracy[0, :, 5]) / 2
    assert at(np.sqrt(8 * 12)) == pytest.approx(middle)  # half way, by logarithms
    assert np.array_equal(at(1000), bank.accuracy[0, :, -1])
    assert np.isnan(at(0)).all()


def test_a_bank_is_what_it_was_when_it_is_read_again(bank, tmp_path):
    file = tmp_path / "bank.json"
    file.write_bytes(bank_bytes(bank))
    again = read_bank(file)
    assert bank_bytes(again) == file.read_bytes()
    assert again.accuracy == pytest.approx(bank.accuracy, abs=1e-4)
    assert again.methods == bank.methods
    file.write_text('{"format": 99}')
    with pytest.raises(DataError, match="format 99"):
        read_bank(file)


def test_only_the_nearest_count_and_nearer_ones_more():
    weights = weights_of(np.array([3.0, 1.0, 2.0, 9.0, 8.0]), nearest=3)
    assert weights.sum() == pytest.approx(1)
    assert weights[1] > weights[2] > weights[0] > 0
    assert weights[3] == weights[4] == 0


def test_a_federation_of_the_bank_is_its_own_nearest(bank):
    features = dict(zip(bank.feature_names, bank.features[3], strict=True))
    near = likeness(bank, features)
    assert near.order[0] == 3
    assert not near.is_unlike
    assert left_out(bank)[3].weights[3] == 0


def test_another_data_set_is_farther_only_if_the_bank_knows_it(bank):
    features = dict(zip(bank.feature_names, bank.features[3], strict=True))
    plain = likeness(bank, features).distance
    assert np.array_equal(likeness(bank, features, "never heard of").distance, plain)
    assert np.array_equal(likeness(bank, features, "made").distance, plain)


def test_a_federation_like_no_other_is_said_to_be_one(bank):
    usual = table_of(np.random.default_rng(1), 40, 0.3)
    assert not likeness(bank, features_of(usual, TRAINING)).is_unlike
    large = np.tile(usual * 400, (50, 1))  # 2,000 clients of 24,000 examples
    near = likeness(bank, features_of(large, Training(5, 20, 16, 1e-5)))
    assert near.is_unlike
    assert {"lr", "clients", "examples"} <= set(near.outside)


def forecast_of(bank, table, rounds=40.0, **options):
    features = features_of(table, TRAINING)
    near = likeness(bank, features)
    found = forecast(bank, near, [rounds] * len(METHODS), **options)
    right = np.array([truth(name, features["group_skew"], rounds) for name in METHODS])
    return found, right


def test_forecasts_come_near_the_truth_and_gains_nearer(bank):
    errors, gain_errors = [], []
    for seed in range(20):
        rng = np.random.default_rng(100 + seed)
        found, right = forecast_of(bank, table_of(rng, 40, 10 ** rng.uniform(-1, 0.5)))
        errors.append(np.abs(found.mean - right).max())
        gain_errors.append(np.abs(found.gain - (right - right[0])).max())
    assert np.mean(errors) < 0.02
    assert np.mean(gain_errors) < 0.02
    assert found.gain[0] == 0


def test_ninety_percent_intervals_hold_the_truth_in_about_ninety_percent():
    """Fresh federations of the same world, measured with the noise that the bank has."""
    bank, held, gain_held = make_bank(120, noise=0.03, seed=5), [], []
    others = left_out(bank)
    for seed in range(150):
        rng = np.random.default_rng(1000 + seed)
        table = table_of(rng, int(rng.integers(20, 60)), float(10 ** rng.uniform(-1.3, 0.7)))
        found, right = forecast_of(bank, table, others=others)
        seen = right + 0.03 * rng.standard_normal(len(right))
        held += list((found.low <= seen) & (seen <= found.high))
        gain = (seen - seen[0])[1:]
        gain_held += list((found.gain_low[1:] <= gain) & (gain <= found.gain_high[1:]))
    assert 0.85 <= np.mean(held) <= 0.95
    assert 0.85 <= np.mean(gain_held) <= 0.95


def test_too_few_federations_give_no_interval():
    found, _ = forecast_of(make_bank(6), table_of(np.random.default_rng(0), 40, 0.3))
    assert (found.low == 0).all()
    assert (found.high == 1).all()


def test_an_anchor_moves_the_forecast_of_all_methods(bank):
    table = table_of(np.random.default_rng(3), 40, 0.2)
    plain, _ = forecast_of(bank, table)
    low = forecast(
        bank, likeness(bank, features_of(table, TRAINING)), [40.0] * 4,
        anchors={"fedavg": Anchor(40.0, 0.5)},
    )  # fmt: skip
    assert low.mean[0] == pytest.approx(0.5)
    assert low.mean - 0.5 == pytest.approx(plain.mean - plain.mean[0], abs=1e-9)


def test_gains_are_differences_of_forecasts_and_lie_in_their_intervals(bank):
    near = likeness(bank, features_of(table_of(np.random.default_rng(3), 40, 0.2), TRAINING))
    for anchors in ({}, {"fedavg": Anchor(8.0, 0.3)}, {"fed_cbs": Anchor(8.0, 0.3)}):
        found = forecast(bank, near, [40.0] * 4, anchors=anchors)
        assert found.gain == pytest.approx(found.mean - found.mean[0], abs=1e-9)
        assert ((found.gain_low <= found.gain) & (found.gain <= found.gain_high)).all()


def test_judging_finds_that_the_right_method_is_chosen_where_it_is_clear(bank):
    methods = ["fedavg", "fed_cbs", "balanced_chains"]
    found = judge(bank, np.full((60, 4), 40.0), methods)
    assert found.cases == 60
    assert found.near_best > 0.7
    assert found.near_best >= found.always_near_best - 0.1
    assert 0.85 <= found.covered <= 0.97
