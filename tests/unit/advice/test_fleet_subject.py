"""A federation known by what its server was told: from the checkpoint of a run without rounds."""

from __future__ import annotations

import numpy as np
import pytest

import fedskew
from fedskew.advice.subject import subject_of_fleet
from fedskew.errors import RunFolderError
from fedskew.recipe import load, override, resolve

SMALL = {"data.clients": 8, "partition.use": "dirichlet", "partition.alpha": 0.3}


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """signal -> what the server knows after asking everybody; and the truth."""
    folder = tmp_path_factory.mktemp("asked")

    def ask(name, **signal):
        settings = {**SMALL, "run.rounds": 0, **{f"signal.{k}": v for k, v in signal.items()}}
        run = fedskew.run("fedavg", settings=settings, out=folder / name, workers=1, seed=3)
        recipe = resolve(override(load("fedavg"), SMALL))
        subject = subject_of_fleet(folder / name, recipe)
        assert subject.parameters == run.models.shape[1]
        return subject, run.labels.counts

    return {
        "histogram": ask("histogram", use="histogram"),
        "estimated": ask("estimated", use="estimated"),
        "private": ask("private", use="private", epsilon=2.0),
    }


def test_told_counts_are_the_counts(asked):
    subject, truth = asked["histogram"]
    assert np.array_equal(subject.counts.table, truth)
    assert subject.counts.notes[0] == "disclosed counts of 8 of 8 clients"


def test_a_probe_tells_mixes_and_noise_shows(asked):
    estimated, truth = asked["estimated"]
    assert np.abs(estimated.counts.table - truth).max() <= 1
    private, _ = asked["private"]
    assert not np.array_equal(private.counts.table, truth)
    assert np.abs(private.counts.table - truth).max() < 20
    assert private.counts.notes[0] == "private counts (epsilon 2) of 8 of 8 clients"


def test_advice_rests_on_them_and_is_written_for_the_app(asked, bank):
    subject, truth = asked["histogram"]
    advice = fedskew.advise(subject, bank=bank, budget="30rounds")
    local, per_round = subject.recipe["local"], subject.recipe["run"]["clients_per_round"]
    settings = {f"local.{key}": local[key] for key in ("epochs", "batch", "lr")}
    settings |= {"run.clients_per_round": per_round}
    parameters = subject.parameters
    alone = fedskew.advise(
        truth, bank=bank, budget="30rounds", settings=settings, parameters=parameters
    )
    assert [c.method for c in advice.choices] == [c.method for c in alone.choices]
    assert advice.choices[0].accuracy == pytest.approx(alone.choices[0].accuracy)
    recipe = advice.recipe()
    assert recipe["data"]["use"] == "digits"
    assert recipe["description"].endswith("in the place of recipe.toml in the app's folder.")


def test_a_run_that_asked_nobody_is_refused(tmp_path):
    fedskew.run("fedavg", settings={**SMALL, "run.rounds": 0}, out=tmp_path / "none", workers=1)
    with pytest.raises(RunFolderError, match="holds no label mixes"):
        subject_of_fleet(tmp_path / "none", resolve(load("fedavg")))
