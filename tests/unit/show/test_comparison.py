"""Comparisons: figures computed by hand, intervals as scipy has them, and nothing compared that
does not belong together.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedskew.accounting.targets import first_held
from fedskew.compare.comparison import Comparison, _each_once
from fedskew.compare.estimates import Estimate, mean_interval, paired_difference
from fedskew.compare.scores import METRICS, scores_of, target_scores
from fedskew.errors import DataError, RunFolderError
from fedskew.experiment.run import Run
from fedskew.records import Labels
from fedskew.report.amounts import change_text, estimate_text
from fedskew.types import Chain, Cost, RoundRecord, Transfer

METRIC = {metric.key: metric for metric in METRICS}


def record(
    round,
    accuracy,
    *,
    bytes=100,
    clients=(0,),
    joules=math.nan,
    seconds=math.nan,
    client_accuracy=math.nan,
):
    chains = tuple(Chain(0, (client,)) for client in clients) if round else ()
    moved = (Transfer("down", "model", bytes, bytes),) if round else ()
    cost = Cost(seconds, joules)
    return RoundRecord(
        round, chains, {}, {}, moved, accuracy, 1.0, 0.1, {}, cost, client_accuracy=client_accuracy
    )


def made(
    name="a",
    seed=0,
    accuracies=(0.1, 0.5, 0.6),
    *,
    data="digits",
    clients=None,
    finished=True,
    **each,
):
    recipe = {"name": name, "data": {"use": data, "clients": 4}}
    rounds = [record(t, accuracy, **each) for t, accuracy in enumerate(accuracies)]
    return Run(recipe, seed, rounds, clients or {}, finished=finished)


def of_rounds(rounds):
    return Run({"name": "a", "data": {"clients": 2}}, 0, rounds)


# ---------------------------------------------------------------- estimates


def test_the_t_interval_is_scipys():
    values = np.random.default_rng(0).normal(size=7)
    found = mean_interval(values)
    low, high = stats.t.interval(0.95, 6, loc=values.mean(), scale=stats.sem(values))
    assert (found.mean, found.low, found.high) == pytest.approx((values.mean(), low, high))


def test_unknown_values_are_left_out_and_one_seed_has_no_interval():
    found = mean_interval([0.5, math.nan])
    assert (found.mean, found.n) == (0.5, 1)
    assert math.isnan(found.low)
    assert mean_interval([math.nan]).n == 0


def test_the_bootstrap_agrees_with_scipys_percentile_interval():
    ours, theirs = np.random.default_rng(1).normal(0.3, 1, 12), np.zeros(12)
    found = paired_difference(dict(enumerate(ours)), dict(enumerate(theirs)))
    parity = stats.bootstrap(
        (ours,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(2)
    )
    assert found.low == pytest.approx(parity.confidence_interval.low, abs=0.03)
    assert found.high == pytest.approx(parity.confidence_interval.high, abs=0.03)
    assert found == paired_difference(dict(enumerate(ours)), dict(enumerate(theirs)))  # seeded


def test_a_difference_is_real_only_with_five_seeds_and_zero_outside():
    def against_zero(*ours):
        return paired_difference(dict(enumerate(ours)), dict.fromkeys(range(len(ours)), 0.0))

    four = against_zero(1.0, 2.0, 1.5, 1.2)
    assert four.low > 0
    assert not four.is_real
    assert against_zero(1.0, 2.0, 1.5, 1.2, 1.0).is_real
    assert against_zero(-1.0, -2.0, -1.5, -1.2, -1.0).is_real
    assert not against_zero(1.0, -2.0, 1.5, 1.2, 1.0).is_real


# ---------------------------------------------------------------- scores


def test_scores_by_hand():
    played = made(
        accuracies=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7),
        clients={"accuracy": [1.0, 0.6], "test_examples": [30, 10]},
    )
    found = scores_of(played)
    assert found["final"] == pytest.approx(0.5)  # mean of .3 to .7
    assert found["best"] == 0.7
    assert found["client_accuracy"] == pytest.approx(0.9)
    assert (found["ad"], found["sdad"]) == pytest.approx((0.2, 0.2))
    assert found["bytes"] == 600
    assert found["jain"] == pytest.approx(1 / 4)  # one of four clients did everything
    assert found["never"] == 0.75
    assert math.isnan(found["time"])


def test_three_evaluations_in_a_row_reach_a_target():
    assert first_held([0.9, 0.9, 0.1, 0.9, 0.9, 0.9], 0.9) == 3
    played = made(accuracies=(0.1, 0.9, 0.95, 0.9), joules=2.0, seconds=3.0)
    found = target_scores(played, 0.9)
    assert found["rounds_to"] == (1, False)
    assert found["bytes_to"] == (100, False)
    assert found["energy_to"] == (4.0, False)  # round 0 costs as well
    assert target_scores(played, 0.96)["rounds_to"] == (3, True)


def test_a_round_zero_without_an_account_costs_nothing():
    rounds = [record(0, 0.1), record(1, 0.5, joules=2.0), record(2, 0.6, joules=3.0)]
    assert of_rounds(rounds).spent("energy").tolist() == [0, 2, 5]


def test_a_method_with_several_models_is_judged_by_its_clients():
    rounds = [
        record(0, 0.1),
        record(1, math.nan, client_accuracy=0.8),
        record(2, math.nan, client_accuracy=0.9),
    ]
    curve = of_rounds(rounds).curve
    assert (curve.positions.tolist(), curve.accuracy.tolist()) == ([1, 2], [0.8, 0.9])
    assert not curve.is_global


# ---------------------------------------------------------------- the table


def test_equal_bytes_cut_off_the_expensive_method():
    cheap = [made("cheap", s, (0.1, 0.5, 0.6), bytes=100) for s in range(5)]
    dear = [made("dear", s, (0.1, 0.7, 0.9), bytes=200) for s in range(5)]
    table = Comparison.of(cheap + dear).table(budget="bytes")
    assert table.budget_size == 200
    assert table.rows[0].estimates["at_budget"].mean == pytest.approx(0.55)
    assert table.rows[1].estimates["at_budget"].mean == pytest.approx(0.7)  # one round of two
    assert table.best["at_budget"] == 1
    assert table.best["bytes"] == 0


def test_bold_needs_a_real_difference():
    ours = [made("ours", s, (0.1, 0.5 + d)) for s, d in enumerate((0.2, -0.1, 0.1, -0.05, 0.0))]
    base = [made("base", s, (0.1, 0.5)) for s in range(5)]
    assert "final" not in Comparison.of(base + ours).table().best
    better = [made("better", s, (0.1, 0.6 + s / 100)) for s in range(5)]
    assert Comparison.of(base + better).table().best["final"] == 1
    # the best must beat the runner-up too, not only the first row
    twin = [made("twin", s, (0.1, 0.6 + (4 - s) / 100)) for s in range(5)]
    assert "final" not in Comparison.of(base + better + twin).table().best


def test_a_lead_too_small_to_be_seen_is_not_marked():
    """AFLS that trains in parallel is FedAvg plus some bytes: certain, and of no consequence."""

    def runs(name, extra):
        return [made(name, seed, (0.1, 0.5, 0.6), bytes=1_000_000 + extra) for seed in range(6)]

    assert "bytes" not in Comparison.of(runs("a", 0) + runs("b", 900)).table().best
    assert Comparison.of(runs("a", 0) + runs("b", 1_100)).table().best["bytes"] == 0


def test_a_censored_cost_is_a_bound_and_never_best():
    slow = [made("slow", s, (0.1, 0.2, 0.3, 0.4)) for s in range(5)]
    fast = [made("fast", s, (0.1, 0.95, 0.95, 0.95)) for s in range(5)]
    table = Comparison.of(slow + fast).table(target=0.9)
    assert estimate_text(table.rows[0].estimates["rounds_to"], METRIC["rounds_to"]) == ">3"
    assert estimate_text(Estimate(2.0, 1.0, 3.0, 3, 1), METRIC["rounds_to"]) == ">2 (1 of 3 never)"
    assert table.best["rounds_to"] == 1


def test_what_a_target_costs_against_the_first_method():
    """docs/methods.md 9.6: 1 - R / R_base; where a seed never got there it is a bound, where both
    sides failed nothing can be said.
    """
    late = [made("late", s, (0.1, 0.2, 0.3, 0.4, 0.95, 0.95, 0.95)) for s in range(2)]
    soon = [made("soon", s, (0.1, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95)) for s in range(2)]
    never = [made("never", s, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)) for s in range(2)]

    def changes(*entries):
        table = Comparison.of([run for entry in entries for run in entry]).table(target=0.9)
        return [change_text(table.saved(row, METRIC["rounds_to"])) for row in table.rows[1:]]

    assert changes(late, soon, never) == ["-75.0 %", "≥ +50.0 %"]  # 4 rounds, 1, and more than 6
    assert changes(never, soon) == ["≤ -83.3 %"]
    hopeless = [made("hopeless", s, (0.1,) * 7) for s in range(2)]
    assert changes(never, hopeless) == ["–"]
    table = Comparison.of(late + soon).table(target=0.9)
    assert table.saved(table.rows[1], METRIC["final"]).value is None, "an accuracy is no cost"
    assert [row["saved"] for row in table.as_rows() if row["metric"] == "rounds_to"] == [0.0, 0.75]


def test_the_baseline_can_be_chosen():
    both = Comparison.of([made("a", 0), made("b", 0, (0.1, 0.5, 0.7)), made("c", 0)])
    turned = both.against("b")
    assert [entry.label for entry in turned.entries] == ["b", "a", "c"]
    assert turned.table().rows[1].differences["best"].mean == pytest.approx(-0.1)
    with pytest.raises(DataError, match="there is no method 'd'"):
        both.against("d")


def test_differences_use_the_seeds_both_have():
    base = [made("base", s, (0.1, 0.5)) for s in (0, 1)]
    ours = [made("ours", s, (0.1, 0.5 + s / 10)) for s in (1, 2)]
    table = Comparison.of(base + ours).table()
    assert table.rows[1].differences["final"].n == 1
    assert table.rows[1].differences["final"].mean == pytest.approx(0.1)
    assert any("different seeds" in note for note in table.notes)


def test_tidy_tables_agree_with_pandas_and_arrow():
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    found = Comparison.of([made("a", 0), made("b", 0)])
    rows = found.rows("rounds")
    assert [(row["recipe"], row["round"], row["accuracy"]) for row in rows[:3]] == [
        ("a", 0, 0.1),
        ("a", 1, 0.5),
        ("a", 2, 0.6),
    ]
    assert len(rows) == len(found.frame("rounds")) == found.arrow("rounds").num_rows == 6
    assert found.frame("transfers").bytes.sum() == 400
    assert found.frame("choices").client.tolist() == [0, 0, 0, 0]
    assert {row["metric"] for row in found.rows("scores")} >= {"final", "best", "jain"}


# ---------------------------------------------------------------- bad input


def test_mixed_datasets_are_refused():
    with pytest.raises(
        RunFolderError, match=r"differs from a, seed 0 in data.use \('mnist' instead of 'digits'\)"
    ):
        Comparison.of([made("a"), made("b", data="mnist")])


def test_other_clients_under_the_same_seed_are_refused():
    from dataclasses import replace

    ones, twos = (Labels(np.full((4, 2), n), ["x", "y"]) for n in (1, 2))
    with pytest.raises(RunFolderError, match="other clients"):
        Comparison.of([replace(made("a"), labels=ones), replace(made("b"), labels=twos)])


def test_the_same_run_twice_is_refused():
    with pytest.raises(RunFolderError, match="the same run"):
        Comparison.of([made("a", 1), made("a", 1)])


def test_a_run_still_going_is_named_and_left_out():
    found = Comparison.of([made("a", 0), made("a", 1, finished=False)])
    table = found.table()
    assert table.rows[0].seeds == (0,)
    assert "not finished" in table.notes[0]
    with pytest.raises(RunFolderError, match="no run is finished"):
        Comparison.of([made("a", 0, finished=False)]).table()


def test_nothing_and_nonsense_are_refused():
    with pytest.raises(DataError, match="there are no runs"):
        Comparison.of([])
    with pytest.raises(DataError, match="not an accuracy"):
        Comparison.of([made()]).table(target=90)
    with pytest.raises(DataError, match="no table 'round'"):
        Comparison.of([made()]).rows("round")


def test_methods_without_a_global_model_are_never_mixed_with_those_that_have_one():
    one = [made("one", seed=s) for s in range(2)]
    many = [made("many", seed=s, accuracies=(math.nan,) * 3, client_accuracy=0.7) for s in range(2)]
    table = Comparison.of([*one, *many]).table(target=0.5, budget="rounds")
    assert table.rows[0].estimates["final"].n == 2
    assert [
        table.rows[1].estimates[key].n
        for key in ("final", "best", "at_budget", "rounds_to", "bytes_to")
    ] == [0] * 5
    assert table.rows[1].estimates["bytes"].n == 2
    alone = Comparison.of(many).table(target=0.5)
    assert alone.rows[0].estimates["final"].mean == pytest.approx(0.7)


def test_a_run_that_lies_on_disk_twice_counts_once_and_the_finished_one_counts():
    going, done, other = (
        made("one", accuracies=(0.1, 0.2), finished=False),
        made("one"),
        made("one", seed=1),
    )
    assert [id(run) for run in _each_once([going, done, made("one"), other])] == [
        id(done),
        id(other),
    ]
