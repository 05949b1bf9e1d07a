"""The tables of evidence/personal.py: means, intervals and paired differences by hand; nothing
is trained here.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "evidence" / "personal.py"


@pytest.fixture(scope="module")
def personal():
    spec = importlib.util.spec_from_file_location("evidence_personal", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(personal):
    figures = {"FedAvg": (0.60, 0.70), "CFL": (0.80, 0.86)}
    return [
        {
            "setting": "S 0", "seed": seed, "method": method, "models": 1, "seconds": 1.0,
            "weighted": figures.get(method, (0.5, 0.5))[seed],
            "ad": 0.3, "sdad": 0.1, "worst10": 0.2, "jain": 0.9, "accuracy": [0.5, 1.0, None],
        }
        for method in personal.ROWS
        for seed in (0, 1)
    ]  # fmt: skip


def test_intervals_are_students(personal):
    assert personal.interval([0.6, 0.7]) == pytest.approx(12.7062 * 0.0707107 / 2**0.5, rel=1e-4)
    assert np.isnan(personal.interval([0.6]))


def test_gains_are_paired_by_seed(personal):
    entry = next(e for e in personal.summarise(rows(personal)) if e["method"] == "CFL")
    assert entry["weighted"] == pytest.approx(0.83)
    assert entry["gain"] == pytest.approx(0.18)
    assert entry["gain_interval"] == pytest.approx(personal.interval([0.20, 0.16]))


def test_every_row_is_in_the_table_and_the_page(personal):
    entries = personal.summarise(rows(personal))
    text = personal.page(rows(personal), entries, ["S 0"], {"seconds": 1.0, "cores": 2, "seeds": 2})
    for name in (
        "FedAvgM",
        "FedProx",
        "HACCS",
        "FedSoft",
        "IFCA",
        "Clust-PSI-PFL",
        "local only",
        "majority class",
        "fine-tuned FedAvg",
    ):
        assert f"| {name} |" in text
    assert "0.830 ± 0.381<br>0.300 ± 0.100" in text


def test_the_figure_is_drawn(personal, tmp_path):
    pytest.importorskip("matplotlib")
    personal.draw(rows(personal), ["S 0"], tmp_path / "ecdf.png")
    assert (tmp_path / "ecdf.png").stat().st_size > 5000


def test_every_method_of_the_issue_is_played(personal):
    from fedskew.recipe import load, override, resolve

    assert list(personal.SETTINGS) == ["α 50", "α 0.7", "α 0.3", "S 1", "S 0.03", "S 0"]
    for recipe, changes in personal.METHODS.values():
        for setting in personal.SETTINGS.values():
            resolved = resolve(override(load(recipe), {**personal.COMMON, **setting, **changes}))
            assert (
                resolved["local"]["optimizer"],
                resolved["run"]["rounds"],
                resolved["data"]["clients"],
            ) == ("adam", 40, 100)
