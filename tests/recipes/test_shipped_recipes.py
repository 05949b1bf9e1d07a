"""Every recipe that comes with the package loads, resolves to itself and plays two rounds on
scripted clients.
"""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.accounting.devices import Devices, draw_population
from fedskew.loop.federation import run, settle
from fedskew.recipe import load, method_of, num_rounds, override, resolve, shipped_recipes
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import Layout

LAYOUT = Layout.of(
    [("body", (8,), "weight"), ("head.weight", (10, 4), "weight"), ("head.bias", (10,), "weight")]
)


MAKES_IT = {  # what each recipe must say, else it is FedAvg, or another method, under its name
    "afls": {"procedure.use": "adaptive", "procedure.theta": 8.5, "signal.use": "histogram"},
    "bacsa": {
        "selection.use": "bacsa",
        "selection.objective": "group",
        "signal.use": "estimated",
        "model.head_init": "bacsa",
    },
    "bacsa_fs": {
        "selection.use": "bacsa",
        "aggregation.weights": "uniform",
        "local.max_examples": 71,
    },
    "bacsa_snr": {
        "selection.use": "bacsa",
        "selection.use_snr": True,
        "devices.snr_db": (0.0, 30.0),
    },
    "balanced_chains": {
        "selection.use": "bacsa",
        "procedure.use": "chains",
        "procedure.chains": 2,
        "procedure.groups": "balanced",
    },
    "baton": {
        "procedure.use": "baton",
        "procedure.haste": 0.0,
        "objective.use": "logit_adjusted",
        "objective.tau": 0.5,
        "run.served_rounds": 10,
    },
    "baton_fast": {
        "procedure.use": "baton",
        "selection.use": "fed_cbs",
        "procedure.haste": 1.0,
        "objective.tau": 0.5,
        "finish.use": "ccvr",
        "run.served_rounds": 5,
    },
    "cba": {"selection.use": "cba", "data.auxiliary": 100},
    "centered_clipping": {"aggregation.use": "centered_clipping", "aggregation.bucket": 2},
    "ccvr": {"finish.use": "ccvr", "finish.virtual": 500},
    "cfl": {"procedure.use": "cfl", "procedure.eps_mode": "relative"},
    "chains": {"procedure.use": "chains", "procedure.chains": 4},
    "clust_psi_pfl": {
        "distance.use": "psi",
        "clustering.use": "kmeans",
        "procedure.use": "per_cluster",
        "selection.fraction": 0.5,
    },
    "divfl": {"selection.use": "divfl"},
    "fed_cbs": {"selection.use": "fed_cbs"},
    "fedadagrad": {"aggregation.use": "adaptive", "aggregation.rule": "adagrad"},
    "fedadam": {"aggregation.use": "adaptive", "aggregation.rule": "adam"},
    "fedavgm": {"aggregation.use": "momentum", "aggregation.beta": 0.7},
    "fedbabu": {"model.head": "frozen"},
    "fedcls": {"selection.use": "fedcls"},
    "fedconcat": {
        "finish.use": "fedconcat",
        "procedure.use": "per_cluster",
        "clustering.count": 5,
    },
    "fedcor": {"selection.use": "fedcor", "aggregation.weights": "uniform"},
    "feddisco": {"aggregation.use": "feddisco", "signal.use": "histogram"},
    "feddyn": {"aggregation.use": "dyn"},
    "fedetf": {"model.head": "etf", "objective.use": "logit_adjusted"},
    "fedlc": {"objective.use": "fedlc", "objective.tau": 1.0, "objective.denominator": "all"},
    "fedlecc": {
        "selection.use": "fedlecc",
        "distance.use": "hellinger",
        "clustering.use": "optics",
    },
    "fednova": {"aggregation.use": "nova"},
    "fedntd": {"objective.use": "fedntd", "objective.beta": 1.0, "objective.temperature": 1.0},
    "fedprox": {"local.prox_mu": 0.01},
    "fedrs": {"objective.use": "fedrs", "objective.alpha": 0.5},
    "fedseq": {"procedure.use": "sequential", "procedure.relay": "server"},
    "fedseq_d2d": {"procedure.use": "sequential", "procedure.relay": "d2d"},
    "fedsoft": {"procedure.use": "fedsoft"},
    "fedtra": {"local.momentum": 0.9},  # FedAvg with everyone under paper 003's settings
    "fedvls": {"objective.use": "fedvls", "objective.distillation": 0.1},
    "fedyogi": {"aggregation.use": "adaptive", "aggregation.rule": "yogi"},
    "greedy_balance": {"selection.use": "greedy_balance", "signal.use": "estimated"},
    "haccs": {"selection.use": "haccs", "clustering.use": "dbscan", "devices.classes": "haccs"},
    "hics": {"selection.use": "hics"},
    "ifca": {"procedure.use": "ifca", "procedure.restarts": 3},
    "krum": {"aggregation.use": "krum", "aggregation.hostile": 0.2},
    "local_only": {"procedure.use": "local_only"},
    "logit_adjusted": {"objective.use": "logit_adjusted", "objective.tau": 1.0},
    "median": {"aggregation.use": "median"},
    "oort": {"selection.use": "oort"},
    "per_cluster_hellinger": {
        "distance.use": "hellinger",
        "clustering.use": "optics",
        "procedure.use": "per_cluster",
    },
    "poc": {"selection.use": "power_of_choice", "aggregation.weights": "uniform"},
    "psi_pfl": {"selection.use": "psi_pfl"},
    "rfa": {"aggregation.use": "geometric_median", "aggregation.weights": "examples"},
    "scaffold": {"aggregation.use": "scaffold"},
    "skew_aware": {"aggregation.use": "skew_aware"},
    "trimmed_mean": {"aggregation.use": "trimmed_mean", "aggregation.trim": 0.2},
    "similarity": {"selection.use": "one_per_cluster", "clustering.use": "kmedoids"},
}


def settings_of(name):
    """Every setting of a resolved recipe under "table.option"."""
    tables = [
        (table, options)
        for table, options in resolve(load(name)).items()
        if isinstance(options, dict)
    ]
    return {
        f"{table}.{option}": value for table, options in tables for option, value in options.items()
    }


@pytest.mark.parametrize("name", sorted(set(shipped_recipes()) - {"fedavg"}))
def test_a_recipe_is_the_method_it_is_named_after(name):
    found, plain, wanted = settings_of(name), settings_of("fedavg"), MAKES_IT[name]
    assert {key: found.get(key) for key in wanted} == wanted
    assert any(plain.get(key) != value for key, value in wanted.items()), (
        "nothing here sets it apart from FedAvg"
    )


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_recipe_plays(name):
    raw = load(name)
    assert raw["name"] == name
    assert raw["description"]
    assert raw["citation"]
    resolved = resolve(override(raw, {"run.rounds": 2}))
    assert resolve(resolved) == resolved
    counts = np.random.default_rng(0).integers(1, 30, size=(resolved["data"]["clients"], 10))
    means = draw_population(counts.sum(axis=1), Devices(**resolved["devices"]), 0)
    runtime = ScriptedRuntime(counts, layout=LAYOUT, population=means)
    records = [record for _, record in run(settle(method_of(resolved), runtime, 0))]
    assert [record.round for record in records] == list(range(num_rounds(resolved) + 1))
    assert all(record.loss for record in records[1:3])
