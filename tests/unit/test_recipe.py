"""Recipes: reading, merging, overriding, and one clear line for everything that is wrong."""

from __future__ import annotations

import pytest

from fedskew import recipe
from fedskew.errors import RecipeError


def resolved(**tables):
    return recipe.resolve(tables)


def test_defaults_are_filled_in():
    full = resolved()
    assert full["selection"] == {"use": "uniform"}
    guard = {"max_share": 0.0, "bucket": 1, "verify": 0.0}
    assert full["aggregation"] == {"use": "mean", "weights": "examples", **guard}
    assert full["model"]["use"] == "tiny_mlp"
    assert "clustering" not in full


def test_the_default_model_follows_the_data():
    assert resolved(data={"use": "mnist"})["model"]["use"] == "mlp"


def test_a_resolved_recipe_resolves_to_itself():
    full = resolved(local={"lr": 1}, model={"use": "mlp", "hidden": [3, 4]})
    assert recipe.resolve(full) == full
    assert full["model"]["hidden"] == (3, 4)


def test_fingerprint_knows_what_matters():
    mark = recipe.fingerprint(resolved())
    assert recipe.fingerprint(resolved(run={"checkpoint_seconds": 9.0}, name="other")) == mark
    assert recipe.fingerprint(resolved(local={"lr": 0.3})) != mark


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"selektion": {}}, "unknown table or entry 'selektion'. Did you mean 'selection'?"),
        ({"selection": {"use": "unifrom"}}, "unknown selection 'unifrom'. Did you mean 'uniform'?"),
        ({"selection": {"use": "uniform", "d": 3}}, "unknown option 'd'"),
        ({"local": {"lr": "fast"}}, "local.lr: 'fast' is not float"),
        ({"local": {"epochs": 1.5}}, "local.epochs: 1.5 is not int"),
        ({"local": {"epochs": True}}, "local.epochs: True is not int"),
        ({"local": {"lr": -1}}, "local.lr: -1.0 is out of range"),
        ({"local": {"optimizer": "sdg"}}, "'sdg' is not 'sgd' | 'adam'"),
        (
            {"local": {"optimizer": "adam", "momentum": 0.9}},
            "local.momentum: has no meaning for adam",
        ),
        ({"run": {"clients_per_round": 0}}, "run.clients_per_round: 0 is out of range"),
        ({"run": 3}, "recipe.run: is 3, not a table"),
        ({"clustering": {"use": "kmeans"}}, "[clustering] needs [signal] before it"),
        (
            {
                "signal": {"use": "histogram"},
                "distance": {"use": "emd"},
                "clustering": {"use": "kmeans"},
            },
            "w1_index",
        ),
        ({"selection": {"use": "no_such_module:rule"}}, "cannot import 'no_such_module:rule'"),
        ({"selection": {"use": "math:no_such"}}, "cannot import"),
        ({"partition": {"use": "natural"}}, "option 'column' is missing"),
        ({"model": {"use": "mlp", "head_init": "zero"}}, "model.head_init"),
        ({"sweep": {"local.lr": [1]}}, "sweep"),
        # as a published study ran it
        ({"selection": {"use": "power_of_choice", "d": 4}}, "d = 4 candidates for 10 places"),
        (
            {"selection": {"use": "oort", "pacer_rounds": 0}},
            "selection.pacer_rounds: 0 is not positive",
        ),
        (
            {"signal": {"use": "histogram"}, "selection": {"use": "bacsa", "use_snr": True}},
            "devices.snr_db",
        ),
        ({"selection": {"use": "cba"}}, "Set data.auxiliary"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(raw, message):
    with pytest.raises(RecipeError) as caught:
        recipe.resolve(raw)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_rule_from_outside_that_cannot_play_with_nobody_there_is_let_through(
    tmp_path, monkeypatch
):
    (tmp_path / "fragile_rule.py").write_text(
        "def rule(view, rng):\n    return [view.loss[view.available][0]]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert (
        resolved(selection={"use": "fragile_rule:rule"})["selection"]["use"] == "fragile_rule:rule"
    )


def test_extends_goes_one_level_deep(tmp_path):
    (tmp_path / "mine.toml").write_text('extends = "fedavg"\n[local]\nlr = 0.7\n')
    (tmp_path / "deeper.toml").write_text(f'extends = "{tmp_path / "mine.toml"}"\n')
    assert recipe.load(tmp_path / "mine.toml")["local"] == {"epochs": 1, "batch": 16, "lr": 0.7}
    with pytest.raises(RecipeError, match="one level deep"):
        recipe.load(tmp_path / "deeper.toml")


def test_unreadable_toml_says_where(tmp_path):
    (tmp_path / "broken.toml").write_text("[local\nlr = 1")
    with pytest.raises(RecipeError, match=r"broken\.toml: cannot be read as TOML"):
        recipe.load(tmp_path / "broken.toml")


def test_another_use_drops_the_old_options():
    changed = recipe.override(
        recipe.load("fedavg"), {"partition.use": "similarity", "partition.similarity": "0.5"}
    )
    assert changed["partition"] == {"use": "similarity", "similarity": 0.5}


@pytest.mark.parametrize("key", ["lr", "a.b.c.d", "a..c", ""])
def test_set_wants_table_and_option(key):
    with pytest.raises(RecipeError, match=r"table\.option=value"):
        recipe.override({}, {key: 1})


def test_sweep_is_every_combination():
    raw = {"sweep": {"local.lr": [0.1, 0.2], "partition.use": ["iid", "dirichlet"]}}
    made = [(r["local"]["lr"], r["partition"]["use"]) for r in recipe.expand(raw)]
    assert made == [(0.1, "iid"), (0.1, "dirichlet"), (0.2, "iid"), (0.2, "dirichlet")]
    with pytest.raises(RecipeError, match="list of values"):
        list(recipe.expand({"sweep": {"local.lr": 0.1}}))


def test_importing_everything_but_the_runtime_needs_no_torch():
    import subprocess
    import sys

    code = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "flwr"):
            raise ImportError(f"{name} must not be needed")

sys.meta_path.insert(0, Refuse())
import fedskew.recipe, fedskew.loop.federation, fedskew.records, fedskew.cli.main
import fedskew.runtime.scripted
fedskew.recipe.method_of(fedskew.recipe.resolve(fedskew.recipe.load("fedavg")))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
