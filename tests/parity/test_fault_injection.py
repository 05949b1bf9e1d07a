"""A thousand rounds in which a fifth of the clients vanish and one in twenty sends NaN."""

from __future__ import annotations

import numpy as np
import pytest

import fedskew

pytest.importorskip("torch")


def test_four_hundred_rounds_of_faults():
    settings = {
        "run.rounds": 400,
        "run.evaluate_every": 100,
        "faults.dropout": 0.2,
        "faults.nan": 0.05,
        "run.min_ok": 0,
        "partition.alpha": 0.5,
    }
    result = fedskew.run("fedavg", settings=settings, workers=1)
    asked = sum(len(r.chains) for r in result.rounds)
    usable = sum(len(r.loss) for r in result.rounds)
    reasons = [why for r in result.rounds for why in r.failures.values()]
    assert asked == 2000
    assert usable + len(reasons) == asked, "a client is either used or in the failures"
    assert result.summary()["failures"] == len(reasons)
    for reason, chance in (("dropped out", 0.2), ("non-finite parameters", 0.8 * 0.05)):
        assert abs(reasons.count(reason) - 2000 * chance) < 5 * np.sqrt(
            2000 * chance * (1 - chance)
        )
    assert set(reasons) == {"dropped out", "non-finite parameters"}
    assert np.isfinite(result.models).all()
    assert result.evaluations[-1][1] > 0.9
    silent = reasons.count("dropped out")
    up = sum(t.bytes for r in result.rounds for t in r.transfers if t.direction == "up")
    assert up == (asked - silent) * result.layout.bytes
