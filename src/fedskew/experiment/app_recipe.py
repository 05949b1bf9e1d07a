"""A recipe in somebody else's Flower app: what can be played there, and the recipe as it is then.

Selection, order, aggregation and accounts are the recipe's; data, model and training are the app's.
So whatever prescribes how clients train, or wants from them what an ordinary reply does not hold,
is refused before anything runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.errors import RecipeError
from fedskew.loop.method import Named
from fedskew.recipe import Table, load, override, resolve, rule_of
from fedskew.recipe.building import RULE_STAGES, guard_of
from fedskew.types import (
    AskLoss,
    AskTrial,
    Clustering,
    Population,
    SelectionRule,
    Signal,
    View,
)

# tables that the app stands for, and [local] options that are the loop's all the same
THE_APPS = ("data", "partition", "model", "local", "devices", "faults")
THE_LOOPS = ("local.bn",)
Rules = Mapping[str, Named[Any]]
Reason = tuple[str, str, str]  # where, what, remedy


def app_recipe(source: str | Path | Mapping[str, Any], settings: Mapping[str, Any]) -> Table:
    """A recipe with changes to it, unresolved, if it can be played with an app's own training."""
    if "run.rounds" in settings:
        what = "would change nothing: start() says how many rounds are played"
        raise RecipeError("settings run.rounds", what, "Give num_rounds to start()")
    for key in settings:
        if key.partition(".")[0] in THE_APPS and key not in THE_LOOPS:
            what = "would change nothing: data, model and training are your app's"
            raise RecipeError(f"settings {key}", what, "Change your app instead")
    raw = override(load(source), settings)
    resolved = resolve(raw)
    rules = {stage: rule_of(resolved, stage) for stage in RULE_STAGES}
    for where, what, remedy in refusals(resolved, rules):
        raise RecipeError(where, what, remedy)
    return raw


def in_app(raw: Mapping[str, Any], *, clients: int, rounds: int, per_round: int | None) -> Table:
    """The resolved recipe of a run with so many clients."""
    changes: dict[str, Any] = {"run.rounds": rounds, "run.evaluate_every": 1}
    if per_round is not None:
        changes["run.clients_per_round"] = per_round
    before, changed = resolve(raw), override(raw, changes)
    kept = {key: before["local"][key] for key in ("report_loss", "bn")}
    used = {key: value for key, value in changed.items() if key not in THE_APPS}
    if used.get("signal", {}).get("use") == "estimated":
        used["signal"] = {**used["signal"], "method": _estimator(before["signal"]["method"])}
    # a rule that wants latencies gets those that were measured
    devices = {"classes": before["devices"]["classes"]}
    own = {"use": "custom"}
    return resolve(
        {
            **used,
            "data": {"use": "custom", "clients": clients},
            "partition": own,
            "model": own,
            "local": kept,
            "devices": devices,
        }
    )


def _estimator(method: str) -> str:
    """How label mixes are read from updates: without knowing steps and learning rate of the app,
    only by a method that does not ask for them.
    """
    return "sqrt_delta" if method == "auto" else method


# ---------------------------------------------------------------- what cannot be played


def refusals(resolved: Mapping[str, Any], rules: Rules) -> Iterator[Reason]:
    """Everything about a recipe that an app of somebody's own cannot do."""
    yield from _of_training(resolved, rules)
    yield from _of_questions(resolved, rules)
    yield from _of_the_server(resolved, rules)


def _of_training(resolved: Mapping[str, Any], rules: Rules) -> Iterator[Reason]:
    objective, server, procedure = (
        resolved["objective"]["use"],
        rules["aggregation"],
        rules["procedure"],
    )
    yours = "and training is your ClientApp's"
    play = "Play the recipe as an app of ours: fedskew flower new"
    if objective != "cross_entropy":
        yield f"objective {objective}", f"changes what clients minimise, {yours}", play
    if resolved["local"]["prox_mu"]:
        what = f"adds a term to every gradient, {yours}"
        yield "local.prox_mu", what, "Use 'fedavg', and add the term in your train function"
    for stage, rule in (("aggregation", server), ("procedure", procedure)):
        if rule.rule.corrects:
            yield f"{stage} {rule.name}", f"corrects every gradient of the clients, {yours}", play
    if "steps" in server.rule.needs():
        what = f"needs to know each client's optimiser and steps, {yours}"
        yield f"aggregation {server.name}", what, play
    head = resolved["model"].get("head", "trained")
    if head != "trained":
        yield "model.head", f"'{head}' changes the model, which is your app's", play
    if "finish" in resolved:
        what = f"trains or fits a layer after the last round, {yours}"
        yield f"finish {resolved['finish']['use']}", what, play


def _of_questions(resolved: Mapping[str, Any], rules: Rules) -> Iterator[Reason]:
    selection, procedure, trust = rules["selection"], rules["procedure"], resolved["trust"]
    signal = resolved.get("signal", {}).get("use")
    if procedure.rule.several_models:
        what = "has a model for each group or client, a Result of Flower's has one"
        yield f"procedure {procedure.name}", what, "Play the recipe by fedskew flower new"
    if isinstance(_first_word(selection.rule), AskLoss | AskTrial):
        what = "asks for losses on training examples of clients that do not train"
        yield f"selection {selection.name}", what, "Use loss_source = 'piggyback', if it has one"
    if "snr" in selection.rule.needs():
        what = "needs signal-to-noise ratios, which Flower does not know"
        yield f"selection {selection.name}", what, "Use 'bacsa'"
    if trust["on"] and trust["probe"] and signal in ("histogram", "private"):
        what = "checks label counts by a training of one step, and training is your ClientApp's"
        yield "trust.probe", what, "Set trust.probe = false"


def _of_the_server(resolved: Mapping[str, Any], rules: Rules) -> Iterator[Reason]:
    asked = {
        f"selection {rules['selection'].name}": rules["selection"].rule.uses_auxiliary,
        "aggregation.verify": guard_of(resolved).verify > 0,
        "signal.method": resolved.get("signal", {}).get("method") == "rlu",
    }
    for where in (name for name, wanted in asked.items() if wanted):
        yield where, "needs examples that the server itself holds", "Use another recipe"
    if resolved["run"]["energy"] != "modelled":
        what = f"'{resolved['run']['energy']}' cannot be measured: clients are elsewhere"
        yield "run.energy", what, "Set run.energy = 'modelled'"


def _first_word(rule: SelectionRule) -> Any:
    """What a rule says at the beginning of a small federation: clients, or a question."""
    size = 4
    even, ones = np.full((size, 2), 0.5), np.ones(size)
    view = View(
        round=2,  # some rules comment their options in the first
        budget=1,
        population=Population(np.full(size, 8), latency_seconds=ones, uplink_bps=ones, snr=ones),
        available=np.ones(size, np.bool_),
        loss=np.full(size, np.nan),
        times_selected=np.zeros(size, np.int64),
        last_selected=np.zeros(size, np.int64),
        signal=Signal(even, np.full(size, 8.0), "disclosed"),
        clustering=Clustering(np.zeros(size, np.int64)),
    )
    with contextlib.suppress(Exception):  # a rule from outside may want more than this
        return rule.choose({}, view, np.random.default_rng(0))[0]
    return None


# ---------------------------------------------------------------- what masked replies leave


def check_secure(resolved: Mapping[str, Any]) -> None:
    """Refuse a recipe that looks at single replies, where only their mean means anything."""
    rules = {stage: rule_of(resolved, stage) for stage in RULE_STAGES}
    selection, procedure, server = (rules[stage] for stage in RULE_STAGES)
    guard = guard_of(resolved)
    readers = {
        f"selection {selection.name}": selection.rule.learns_from in ("last", "all"),
        f"procedure {procedure.name}": procedure.rule.hands_on or procedure.rule.looks_back,
        f"aggregation {server.name}": server.name not in ("mean", "momentum", "adaptive"),
        "aggregation.bucket": guard.bucket > 1,
        "signal estimated": resolved.get("signal", {}).get("use") == "estimated",
        "trust": resolved["trust"]["on"],
    }
    for reader in (name for name, reads in readers.items() if reads):
        what = "looks at single clients' models, which secure aggregation hides"
        raise RecipeError(reader, what, "Use aggregation 'mean' in parallel, with other signals")
