"""Every recipe of a comparison gets the first one's federation, and keeps what is its own."""

from __future__ import annotations

import pytest

from fedskew.compare.contenders import line_up, shared_text, training_note
from fedskew.errors import RecipeError


def test_the_federation_is_the_first_recipes():
    ours, theirs = line_up(["fedavg", "bacsa"], {"data.clients": "12", "run.rounds": "4"})
    for table in ("data", "partition", "devices", "faults"):
        assert ours.recipe[table] == theirs.recipe[table]
    assert theirs.recipe["partition"]["use"] == "dirichlet"
    assert theirs.recipe["data"]["clients"] == 12
    assert (theirs.recipe["run"]["rounds"], theirs.recipe["run"]["clients_per_round"]) == (4, 5)
    assert theirs.recipe["local"]["epochs"] == 5  # its own
    assert theirs.recipe["selection"]["use"] == "bacsa"
    assert theirs.recipe["model"] == ours.recipe["model"] | {"head_init": "bacsa"}
    assert "K = 12, m = 5, 4 rounds" in shared_text(ours.recipe)


def test_a_setting_can_be_for_one_recipe():
    ours, theirs = line_up(
        ["fedavg", "fedlecc"], {"fedlecc:selection.top_clusters": "3", "local.lr": "0.1"}
    )
    assert theirs.recipe["selection"]["top_clusters"] == 3
    assert ours.recipe["local"]["lr"] == theirs.recipe["local"]["lr"] == 0.1
    with pytest.raises(RecipeError, match="'poc' is not in this comparison"):
        line_up(["fedavg"], {"poc:selection.d": "3"})


def test_a_recipe_that_cannot_play_on_this_federation_is_refused():
    with pytest.raises(RecipeError, match=r"devices.classes = 'haccs'"):
        line_up(["fedavg", "haccs"])
    assert len(line_up(["fedavg", "haccs"], {"devices.classes": "haccs"})) == 2


def test_sweeps_and_repeats():
    swept = {"name": "lr", "data": {"use": "digits"}, "sweep": {"local.lr": [0.1, 0.2]}}
    assert [one.label for one in line_up([swept])] == ["lr local.lr=0.1", "lr local.lr=0.2"]
    with pytest.raises(RecipeError, match="'fedavg' is given twice"):
        line_up(["fedavg", "fedavg"])


def test_different_local_training_is_said():
    def note(*names, **options):
        return training_note({one.label: one.recipe for one in line_up(names, **options)})

    text = note("fedavg", "fedlecc", "bacsa")
    assert "epochs 1 (fedavg), 5 (fedlecc, bacsa)" in text
    assert "lr 0.1 (fedavg), 0.005 (fedlecc), 0.01 (bacsa)" in text
    assert note("fedavg") == ""
    assert note("fedavg", "fedprox") == "", "the proximal term is the method"
    assert note("fedavg", "fedlecc", "bacsa", same_training=True) == ""


def test_the_same_training_leaves_a_method_what_is_its_own():
    settings = {"local.epochs": "2", "fedlecc:local.batch": "7"}
    ours, prox, lecc = (
        one.recipe["local"]
        for one in line_up(["fedavg", "fedprox", "fedlecc"], settings, same_training=True)
    )
    assert prox == ours | {"prox_mu": 0.01}
    assert (lecc["epochs"], lecc["lr"], lecc["batch"]) == (2, ours["lr"], 7)
    swept = {
        "name": "lr",
        "data": {"use": "digits"},
        "local": {"epochs": 3},
        "sweep": {"local.lr": [0.3, 0.2]},
    }
    varied = [one.recipe["local"] for one in line_up(["fedavg", swept], same_training=True)][1:]
    assert [(local["lr"], local["epochs"]) for local in varied] == [(0.3, 1), (0.2, 1)]
    with pytest.raises(RecipeError, match="plain SGD"):
        line_up(["fedadam", "scaffold"], same_training=True)
