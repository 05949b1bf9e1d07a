"""Baton is worth its name: more accurate than FedAvg for fewer bytes, each part does something, and
nobody learns anything of a client's labels.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch")
from fedskew.experiment.local import run

SKEWED = {"partition.alpha": 0.1, "run.rounds": 24, "run.evaluate_every": 4}


@pytest.fixture(scope="module")
def played():
    """Three seeds each: a run by recipe and changes, played once."""
    kept = {}

    def play(recipe, **changes):
        key = (recipe, *sorted(changes.items()))
        if key not in kept:
            settings = {**SKEWED, **{k.replace("__", "."): v for k, v in changes.items()}}
            kept[key] = [run(recipe, settings=settings, seed=s, workers=1) for s in range(3)]
        return kept[key]

    return play


def accuracy(runs):
    return float(np.mean([one.summary()["final_accuracy"] for one in runs]))


def sent(runs):
    ways = ("bytes_down", "bytes_up", "bytes_d2d")
    return np.mean([sum(one.summary()[way] for way in ways) for one in runs])


def test_more_accurate_than_fedavg_for_fewer_bytes(played):
    baton, fedavg = played("baton"), played("fedavg")
    assert accuracy(baton) > accuracy(fedavg) + 0.03
    assert sent(baton) == pytest.approx(sent(fedavg) * 6 / 10, rel=0.02)  # 5 clients: 6 of 10


def test_nothing_is_told_of_labels(played):
    def kinds(runs):
        return {t.kind for one in runs for record in one.rounds for t in record.transfers}

    assert kinds(played("baton")) == {"model", "order"}  # order: who comes next
    assert "histogram" in kinds(played("baton_fast"))
    assert all("signal" not in one.recipe for one in played("baton"))


@pytest.mark.parametrize(
    "part",
    [{"objective__tau": 0.0}, {"run__served_rounds": 1}, {"procedure__use": "parallel"}],
    ids=str,
)
def test_every_part_does_something(played, part):
    whole, without = played("baton"), played("baton", **part)
    assert [r.summary()["final_accuracy"] for r in whole] != [
        r.summary()["final_accuracy"] for r in without
    ]


def test_in_haste_it_is_quicker(played):
    def seconds(runs):
        return np.mean([one.summary()["simulated_seconds"] for one in runs])

    assert seconds(played("baton_fast")) < 0.6 * seconds(played("baton"))
    assert accuracy(played("baton_fast")) > accuracy(played("fedavg"))
