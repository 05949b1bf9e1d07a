"""Recipes of the rules on clusters, losses and label sets: they resolve, play in the loop, and
cost what docs/methods.md 9.1 says.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fedskew.accounting.devices import Devices, draw_population
from fedskew.loop.federation import run, settle
from fedskew.recipe import expand, load, method_of, resolve
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.selection import SELECTIONS

RECIPES = ("fedcls", "fedlecc", "haccs", "poc", "psi_pfl", "similarity")
CLASSES, M = 10, 10


def recipe(name, **changes):
    """A shipped recipe; rules not yet in the registry are found by their module."""
    raw = load(name)
    rule = raw["selection"]["use"]
    use = rule if rule in SELECTIONS else f"fedskew.selection.{rule}:{rule}"
    raw["selection"] = {**raw["selection"], **changes, "use": use}
    return resolve(raw)


def rounds_of(resolved, rounds=3, seed=0):
    resolved["run"]["rounds"] = rounds
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(CLASSES, 0.3), resolved["data"]["clients"])
    counts = np.array([rng.multinomial(40, row) for row in share])
    population = draw_population(counts.sum(axis=1), Devices(**resolved["devices"]), seed)
    setting = settle(method_of(resolved), ScriptedRuntime(counts, population=population), seed)
    return setting, list(run(setting))


def bytes_of(record):
    total = Counter()
    for transfer in record.transfers:
        total[transfer.direction, transfer.kind] += transfer.bytes
    return dict(total)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_plays_and_says_whose_it_is(name):
    resolved = recipe(name)
    assert load(name)["name"] == name
    assert resolve(resolved) == resolved
    assert resolved["citation"]
    _, played = rounds_of(resolved)
    assert all(record.loss for _, record in played[1:])


@pytest.mark.parametrize("name", [n for n in RECIPES if n not in ("similarity", "psi_pfl")])
def test_ten_clients_a_round(name):
    _, played = rounds_of(recipe(name))
    assert [len(record.chains) for _, record in played] == [0, M, M, M]


def test_one_client_of_each_cluster_and_half_of_the_cohort():
    _, played = rounds_of(recipe("similarity"))
    clusters = played[0][0].clustering
    for _, record in played[1:]:
        assert sorted(clusters.labels[[c.clients[0] for c in record.chains]]) == list(
            range(clusters.k)
        )
    _, played = rounds_of(recipe("psi_pfl"), rounds=40)
    # 15 of 30 lie at or below the median, half of them
    assert {len(record.chains) for _, record in played[1:]} == {8}
    assert (played[-1][0].times_selected > 0).sum() == 15


def test_bytes_of_a_round_are_those_of_methods_9_1():
    charges = {}
    for name, changes in [
        ("poc", {}),
        ("poc", {"loss_source": "stale"}),
        ("haccs", {}),
        ("fedcls", {}),
        ("fedlecc", {}),
        ("fedlecc", {"loss_source": "exact"}),
        ("fedlecc", {"loss_source": "subset", "subset_size": 12}),
    ]:
        setting, played = rounds_of(recipe(name, **changes), rounds=1)
        charges[name, changes.get("loss_source", "")] = [bytes_of(record) for _, record in played]
        s, K = setting.description.layout.bytes, setting.description.population.size
    down, up, loss = ("down", "model"), ("up", "model"), ("up", "loss")
    histogram = {("up", "histogram"): K * 4 * CLASSES}
    assert charges["poc", ""] == [{}, {down: 20 * s, up: M * s, loss: 20 * 4}]
    assert charges["poc", "stale"] == [{}, {down: M * s, up: M * s, loss: M * 4}]
    assert charges["haccs", ""] == [
        histogram,
        {down: M * s, up: M * s, loss: M * 4, ("up", "latency"): M * 4},
    ]
    assert charges["fedcls", ""] == [histogram, {down: M * s, up: M * s}]
    assert charges["fedlecc", ""] == [histogram, {down: M * s, up: M * s, loss: M * 4}]
    assert charges["fedlecc", "exact"] == [histogram, {down: K * s, up: M * s, loss: K * 4}]
    subset = charges["fedlecc", "subset"][1]
    # the d asked, and those chosen who were not among them
    assert 12 * s <= subset[down] <= (12 + M) * s


def test_where_fedlecc_gets_its_losses_decides_what_clients_report():
    report = {
        source: method_of(recipe("fedlecc", loss_source=source)).job.report_loss
        for source in ("piggyback", "post")
    }
    assert report == {"piggyback": "start", "post": "end"}


def test_the_ablation_is_one_sweep():
    raw = load("fedlecc")
    raw["selection"]["use"] = recipe("fedlecc")["selection"]["use"]
    raw["sweep"] = {
        "selection.rank_clusters": ["loss", "random", "ignore"],
        "selection.rank_clients": ["loss", "random"],
    }
    chosen = {}
    for variant in expand(raw):
        ranks = variant["selection"]["rank_clusters"], variant["selection"]["rank_clients"]
        _, played = rounds_of(resolve(variant), rounds=4)
        chosen[ranks] = [tuple(c.clients[0] for c in record.chains) for _, record in played[1:]]
        assert [len(ids) for ids in chosen[ranks]] == [M] * 4
    # six methods, six histories
    assert len({tuple(map(tuple, rounds)) for rounds in chosen.values()}) == 6


def test_needs_are_said_so_that_a_recipe_without_them_is_refused():
    for name, needed in [
        ("fedlecc", "clustering"),
        ("haccs", "clustering"),
        ("similarity", "clustering"),
        ("fedcls", "signal"),
    ]:
        assert needed in method_of(recipe(name)).selection.rule.needs()
