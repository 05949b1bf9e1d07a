"""What may be spent, and what clients agree to."""

from __future__ import annotations

import pytest

from fedskew.advice.budget import Budget, read_budget
from fedskew.advice.permits import Allowed, changes_for, disclosed_by, read_allowed, wanted_by
from fedskew.errors import RecipeError
from fedskew.recipe import load, resolve


@pytest.mark.parametrize(
    ("text", "resource", "amount"),
    [
        ("200MB", "bytes", 2e8),
        ("1.5 gb", "bytes", 1.5e9),
        ("2h", "time", 7200),
        ("90s", "time", 90),
        ("50Wh", "energy", 180_000),
        ("100rounds", "rounds", 100),
    ],
)
def test_a_budget_is_an_amount_with_a_unit(text, resource, amount):
    assert read_budget(text) == Budget(resource, amount)


@pytest.mark.parametrize("text", ["", "200", "MB", "-3h", "3 parsecs", "0MB", "1e999h"])
def test_what_is_no_budget_is_refused(text):
    with pytest.raises(RecipeError, match="Examples: 200MB, 2h, 50Wh, 100rounds"):
        read_budget(text)


def test_what_is_allowed_is_what_is_named():
    assert read_allowed("d2d,private=0.5") == Allowed(True, False, False, False, 0.5)
    assert read_allowed("none") == Allowed(False, False, False, False)
    assert read_allowed(Allowed(personal=True, private=2.0).text) == Allowed(
        personal=True, private=2.0
    )


@pytest.mark.parametrize("text", ["histogram", "d2d=1", "private=0", "private=x"])
def test_what_cannot_be_allowed_is_refused(text):
    with pytest.raises(RecipeError, match="--allow"):
        read_allowed(text)


def test_a_recipe_keeps_to_what_is_allowed():
    chains, cbs = {"d2d", "probe"}, {"histograms"}
    assert changes_for(chains, Allowed()) == {}
    assert changes_for(chains, read_allowed("probe")) == {"procedure.relay": "server"}
    assert changes_for(chains, read_allowed("d2d")) is None
    noisy = {"signal.use": "private", "signal.epsilon": 1.0}
    assert changes_for(cbs, read_allowed("private=1")) == noisy
    assert changes_for(cbs, read_allowed("none")) is None
    assert changes_for({"personal", "histograms"}, Allowed()) is None


@pytest.mark.parametrize(
    ("name", "wanted", "said"),
    [
        ("fedavg", set(), "its updates, to the server"),
        ("fedlecc", {"histograms"}, "its loss"),
        ("poc", set(), "its loss"),
        ("bacsa", {"probe"}, "the update of one step"),
        ("afls", {"d2d", "histograms"}, "other clients"),
        ("local_only", {"personal"}, "its updates"),
    ],
)
def test_what_shipped_recipes_ask_of_clients(name, wanted, said):
    recipe = resolve(load(name))
    assert wanted_by(recipe) == wanted
    assert any(said in text for text in disclosed_by(recipe)), disclosed_by(recipe)


def test_noise_is_told_with_its_epsilon():
    recipe = resolve({**load("fed_cbs"), "signal": {"use": "private", "epsilon": 0.5}})
    assert "label counts with noise, once (epsilon 0.5)" in disclosed_by(recipe)
