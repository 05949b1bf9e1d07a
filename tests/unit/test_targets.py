"""Rounds, bytes, time and energy to a target: three in a row, censored if never reached.

Never a made-up number.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from fedskew.cli.summaries import target_row
from fedskew.errors import RunError
from fedskew.experiment.figures import to_plateau, to_target
from fedskew.experiment.run import Run
from fedskew.records import no_nan
from fedskew.types import Cost, RoundRecord, Transfer

NAN = float("nan")
FIRST = Cost(10.0, 5.0, 0.0)


def curve(*accuracies, first=FIRST, measured=NAN):
    """A run whose round t costs 2^t seconds, 2 joules, 100 bytes down and 50 up; round 0 ``first``
    and a histogram of 7 bytes.
    """
    records = []
    for t, accuracy in enumerate(accuracies):
        sent = (
            (Transfer("up", "histogram", 7, 7),)
            if t == 0
            else (Transfer("down", "model", 100, 10), Transfer("up", "model", 50, 50))
        )
        cost = first if t == 0 else Cost(2.0**t, 2.0, 1.0)
        records.append(RoundRecord(t, (), {}, {}, sent, accuracy, 0.0, 0.0, {}, cost, measured))
    return Run({"name": "a"}, 0, records)


def test_three_in_a_row_begin_at_the_first_of_them():
    found = to_target(curve(0.1, 0.9, 0.8, 0.9, 0.95, 0.97, 0.2), 0.9)
    assert (found.rounds, found.first_hit, found.censored, found.text) == (3, 1, False, "3")
    assert found.bytes == 7 + 3 * 150
    assert found.seconds == 10 + 2 + 4 + 8
    assert found.first_hit_seconds == 10 + 2
    assert found.joules == 5 + 3 * 2
    assert found.accuracy == pytest.approx(0.94)
    assert found.accuracy_std == pytest.approx(np.std([0.9, 0.95, 0.97])), "ddof 0"


def test_two_in_a_row_at_the_end_are_censored_though_there_was_a_hit():
    found = to_target(curve(0.1, 0.2, 0.9, 0.9), 0.9)
    assert (found.rounds, found.first_hit, found.text) == (None, 2, ">3")
    assert found.first_hit_seconds == 16


def test_a_target_never_reached_has_no_numbers():
    found = to_target(curve(0.1, 0.2, 0.3), 0.9)
    assert found.censored
    numbers = (
        found.rounds,
        found.first_hit,
        found.bytes,
        found.seconds,
        found.joules,
        found.accuracy,
        found.accuracy_std,
    )
    assert numbers == (None,) * 7
    assert json.loads(json.dumps(no_nan(found.as_dict())))["text"] == ">2"
    assert target_row(found.as_dict()) == {
        "rounds to 0.9": ">2",
        "MB to target": "-",
        "simulated s to target": "-",
        "Wh to target": "-",
    }


def test_rounds_without_an_evaluation_are_neither_in_a_row_nor_in_the_way():
    found = to_target(curve(0.1, NAN, 0.9, NAN, 0.9, NAN, 0.9), 0.9)
    assert (found.rounds, found.bytes) == (2, 7 + 300)


def test_the_untrained_model_counts():
    assert to_target(curve(0.5, 0.5, 0.5), 0.4).rounds == 0


def test_records_without_a_clock_have_rounds_but_no_time():
    records = [replace(r, cost=Cost()) for r in curve(0.9, 0.9, 0.9, 0.9).rounds]
    found = to_target(Run({"name": "a"}, 0, records), 0.9)
    assert (found.rounds, found.seconds, found.joules, found.bytes) == (0, None, None, 7)


def test_measured_energy_comes_before_modelled():
    assert to_target(curve(0.1, 0.9, 0.9, 0.9, measured=4.0), 0.9).joules == 8.0


@pytest.mark.parametrize("target", [-0.1, 1.5, NAN, 90])
def test_a_target_that_is_no_accuracy_is_refused(target):
    with pytest.raises(RunError, match="is no accuracy"):
        to_target(curve(0.1), target)


def test_no_records_at_all():
    assert to_target(curve(), 0.5).text == ">0"
    assert to_plateau(curve()).round is None


def test_the_plateau_needs_its_whole_window():
    rising = [0.1 * t for t in range(6)]
    assert to_plateau(curve(*rising, *[0.504] * 9)).round is None, "nine evaluations after it"
    found = to_plateau(curve(*rising, *[0.504] * 10))
    assert (found.round, found.accuracy) == (5, 0.5), "0.504 exceeds 0.5 by less than half a point"
    assert found.seconds == 10 + 2 + 4 + 8 + 16 + 32
    assert to_plateau(curve(*rising, *[0.504] * 9, 0.506, *[0.506] * 10)).round == 6, (
        "half a point within ten rounds"
    )


def test_nothing_here_is_a_nan_in_disguise():
    reached, never = to_target(curve(0.1, 0.9, 0.92, 0.94), 0.9), to_target(curve(0.1, 0.2), 0.9)
    for figures in (reached, never):
        assert not any(
            isinstance(v, float) and not math.isfinite(v) for v in figures.as_dict().values()
        )
