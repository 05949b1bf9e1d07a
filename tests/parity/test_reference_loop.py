"""Random combinations of stages: the loop against the slow, obvious one of reference_loop.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from reference_loop import ReferenceLoop

from fedskew.accounting.devices import Devices, draw_population
from fedskew.errors import RecipeError, RoundFailed
from fedskew.loop.federation import run, settle
from fedskew.recipe import method_of, resolve
from fedskew.runtime.faults import Faults, FaultyRuntime
from fedskew.runtime.replies import Reply, collect
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.streams import stream
from fedskew.types import AskLoss, AskTrial, AskUpdates, Layout, Scores

RECIPES, PARTS = 500, 10
CLASSES = 3
LAYOUT = Layout.of(
    [
        ("body", (3,), "weight"),
        ("head.weight", (CLASSES, 2), "weight"),
        ("head.bias", (CLASSES,), "weight"),
        ("norm.mean", (2,), "buffer"),
        ("norm.seen", (), "counter"),
    ]
)


class World(ScriptedRuntime):
    """Replies depend on all that an order says, losses on the client; some make no sense."""

    def train(self, order):
        added = order.corrections
        rows = []
        for row, (client, start) in enumerate(zip(order.clients, order.start, strict=True)):
            rng = stream(order.seed, "batch", int(client), order.round)
            model = order.models[start]
            moved = model + np.float32(order.job.lr) * rng.normal(size=len(model)).astype("f4")
            if added is not None:
                moved[: LAYOUT.num_weights] -= np.float32(order.job.lr) * added[row]
            n = order.job.max_examples or int(self._population.num_examples[client])
            steps = order.job.epochs * -(-n // order.job.batch)
            loss = rng.choice([rng.uniform(0.1, 2), 1e9, -1.0, np.nan], p=[0.85, 0.05, 0.05, 0.05])
            rows.append(Reply(moved, float(loss), 0.01, steps, n))
        return collect(rows, LAYOUT.size)

    def auxiliary(self, models):
        seen = super().auxiliary(models)
        chances = 1 / (1 + np.exp(-10 * models[:, :CLASSES, None] * np.ones(CLASSES)))
        return replace(seen, class_softmax=chances)

    def score(self, order):
        losses = []
        for client, start in zip(order.clients, order.start, strict=True):
            rng = stream(order.seed, "score", int(client), order.round, order.max_examples)
            place = stream(0, "place", int(client)).normal(size=LAYOUT.size)
            loss = np.square(order.models[start] - place).mean() + 0.1 * rng.random()
            nonsense = stream(0, "nonsense", int(client)).random()
            losses.append(loss if nonsense > 0.2 else np.nan if nonsense > 0.1 else 1e9)
        sizes = self._population.num_examples[np.asarray(order.clients)]
        return Scores(losses, 1 / (1 + np.array(losses)), sizes)


def curious(view, rng, *, asks: tuple[str, ...] = ()):
    """Asks one question after the other, then takes the clients with the highest answers."""
    there = np.flatnonzero(view.available)
    some = rng.permutation(there)[: view.budget + 1]
    if len(view.answers) < len(asks):
        questions = {
            "loss": AskLoss(some),
            "few": AskLoss(some, max_examples=3),
            "trial": AskTrial(some),
            "all": AskUpdates(some),
            "last": AskUpdates(some, "last"),
        }
        return questions[asks[len(view.answers)]]
    worth = np.nan_to_num(view.loss, nan=1.0)
    for answer in view.answers:
        whom = slice(None) if isinstance(answer.ask, AskTrial) else answer.ask.clients
        values = np.nan_to_num(answer.values)
        worth[whom] += values if values.ndim == 1 else values.sum(axis=1)
    return there[np.argsort(-worth[there], kind="stable")][: view.budget]


# ---------------------------------------------------------------- random recipes

QUESTIONS = [["trial"], ["all", "trial"], ["loss", "last"], ["few", "loss"], ["trial", "few"]]

SELECTIONS = {
    "uniform": {},
    "round_robin": {},
    "power_of_choice": {"d": [0, 5], "loss_source": ["exact", "batch", "stale"], "batch": [4]},
    "haccs": {"variant": ["paper", "official"]},
    "fedcls": {},
    "fedcor": {"warm_up": [0, 1], "every": [1, 2], "first_steps": [3], "steps": [2]},
    "fedlecc": {
        "top_clusters": [1, 2],
        "loss_source": ["exact", "piggyback", "post", "subset"],
        "subset_size": [3],
        "init": ["random_per_cluster", "evaluate"],
    },
    "one_per_cluster": {"number": ["clusters", "budget"]},
    "stratified": {},
    "psi_pfl": {},
    "bacsa": {"use_snr": [False, True]},
    "greedy_balance": {},
    "cba": {},
    "fed_cbs": {},
    "hics": {},
    "oort": {},
    "divfl": {"layer": ["all", "last"]},
    "test_reference_loop:curious": {"asks": QUESTIONS},
}
PROCEDURES = {
    "parallel": {},
    "sequential": {"relay": ["server", "d2d"], "broken": ["skip", "drop"]},
    "chains": {
        "chains": [0, 2],
        "theta": [3.0],
        "groups": ["random", "balanced", "clusters"],
        "relay": ["server", "d2d"],
        "broken": ["skip", "drop"],
    },
    "adaptive": {
        "theta": [1.0, 3.0],
        "relay": ["server", "d2d"],
        "dial": [False, True],
        "refresh": [0, 1],
    },
    "per_cluster": {},
    "cfl": {"eps1": [100.0], "eps2": [0.0], "min_round": [0], "cache": ["all", "last", "none"]},
    "ifca": {"restarts": [1, 2], "trial_rounds": [1]},
    "fedsoft": {"centres": [2], "draw": ["importance", "given"], "estimate_every": [1, 2]},
    "local_only": {},
}
AGGREGATIONS = {
    "mean": {"weights": ["examples", "uniform"]},
    "momentum": {},
    "adaptive": {"rule": ["adagrad", "adam", "yogi"]},
    "nova": {},
    "dyn": {},
    "scaffold": {},
    "median": {},
    "trimmed_mean": {"trim": [0.0, 0.3]},
    "krum": {},
    "multi_krum": {"keep": [0, 2]},
    "geometric_median": {"weights": ["examples", "uniform"]},
    "clipped_mean": {"factor": [0.5, 1.0], "window": [3, 50]},
    "centered_clipping": {"radius": [0.0, 0.1], "steps": [1, 3]},
    "skew_aware": {"longest": [1.1, 3.0]},
}
GUARDS = {"max_share": [0.0, 0.0, 0.4, 1.0], "bucket": [1, 1, 2], "verify": [0.0, 0.0, 0.01]}
OBJECTIVES = {
    "cross_entropy": {},
    "logit_adjusted": {"reference": ["uniform", "global"]},
    "fedlc": {},
    "fedrs": {},
    "fedntd": {},
    "fedvls": {},
}
TABLES = {
    "local": {
        "epochs": [1, 2],
        "batch": [4],
        "max_examples": [0, 6],
        "report_loss": ["train", "start", "end"],
        "lr_decay": [1.0, 0.9],
        "bn": ["average", "local"],
    },
    "run": {
        "rounds": [2, 3],
        "clients_per_round": [2, 4],
        "evaluate_every": [0, 1, 2],
        "min_ok": [0, 0, 0, 1],
        "resend": [False, False, True],
    },
    "devices": {"classes": ["none", "haccs"], "uplink_bps": [3e4, 1e7]},
    "faults": {
        "available": [1.0, 0.8],
        "dropout": [0.0, 0.3],
        "nan": [0.0, 0.2],
        "wrong_shape": [0.0, 0.1],
        "deadline_seconds": [0.0, 0.0, 0.05, 20.0],
    },
}


def one_of(rng, choices):
    return choices[rng.integers(len(choices))]


def drawn(rng, options):
    return {name: one_of(rng, values) for name, values in options.items()}


def stage(rng, registry):
    use = one_of(rng, list(registry))
    return {"use": use, **drawn(rng, registry[use])}


def random_recipe(rng):
    """A recipe that ``resolve`` accepts."""
    while True:
        raw = {name: drawn(rng, options) for name, options in TABLES.items()}
        raw["data"] = {"clients": 7, "auxiliary": 9}
        raw["devices"]["snr_db"] = [0, 30]
        raw["selection"] = stage(rng, SELECTIONS)
        if raw["selection"]["use"] == "fedcor":
            raw["run"]["rounds"] = 5  # it learns for three rounds before its first trial
        raw["procedure"] = stage(rng, PROCEDURES)
        raw["aggregation"] = {**stage(rng, AGGREGATIONS), **drawn(rng, GUARDS)}
        if rng.random() < 0.7:
            raw["signal"] = {"use": "histogram"}
            raw["distance"] = {"use": "hellinger"}
            raw["clustering"] = {"use": "kmedoids", "count": 2}
        raw["objective"] = stage(rng, OBJECTIVES)
        try:
            return resolve(raw)
        except RecipeError:
            continue


def world_of(recipe, seed):
    counts = stream(seed, "counts").integers(0, 9, size=(7, CLASSES))
    counts[:, 0] += 1
    counts[6] *= seed % 2  # in every other world somebody has no examples
    devices = Devices(**recipe["devices"])
    population = draw_population(counts.sum(axis=1), devices, seed)
    world = World(counts, layout=LAYOUT, population=population)
    return FaultyRuntime(world, Faults(**recipe["faults"]), seed)


# ---------------------------------------------------------------- the comparison


def ledger_of(record):
    ledger = {}
    for sent in record.transfers:
        known = ledger.get((sent.direction, sent.kind), (0, 0))
        ledger[sent.direction, sent.kind] = known[0] + sent.bytes, known[1] + sent.multicast
    return ledger


def same(recipe, seed, loop, reference):
    state, record = loop
    stages = ("selection", "procedure", "objective", "aggregation")
    what = {stage: recipe[stage] for stage in stages}
    where = f"seed {seed}, round {state.round}: {what}, {recipe['run']}, {recipe['local']}"
    expected = {key: tuple(v) for key, v in reference.ledger.items() if v[0]}
    assert ledger_of(record) == expected, where
    assert record.cost.sample_passes == pytest.approx(reference.passes, rel=1e-9), where
    assert np.array_equal(state.models, reference.models), where
    assert np.array_equal(state.loss, reference.loss, equal_nan=True), where
    assert np.array_equal(state.times_selected, reference.times), where
    home = None if state.home is None else state.home.tolist()
    assert home == (None if reference.home is None else list(reference.home)), where


def compare(seed):
    recipe = random_recipe(stream(seed, "recipe"))
    setting = settle(method_of(recipe), world_of(recipe, seed), seed)
    reference = ReferenceLoop(method_of(recipe), world_of(recipe, seed), seed)
    rounds = run(setting)
    same(recipe, seed, next(rounds), reference)
    for t in range(1, recipe["run"]["rounds"] + 1):
        try:
            loop = next(rounds)
        except RoundFailed:
            assert not reference.play(t)
            return
        assert reference.play(t)
        same(recipe, seed, loop, reference)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_combinations_of_stages_play_as_the_reference_does(part):
    for seed in range(part, RECIPES, PARTS):
        compare(seed)
