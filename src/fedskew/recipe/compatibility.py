"""Tables that only make sense together, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedskew.errors import RecipeError
from fedskew.loop.method import Named
from fedskew.objective import loss_for, needs_shares
from fedskew.recipe.building import RULE_STAGES, guard_of, job_of, rule_of
from fedskew.recipe.catalogue import OPTIONAL_STAGES, Table
from fedskew.recipe.dry_run import rehearse
from fedskew.types import CalibrationRule, LocalJob, SecondActRule

Rules = Mapping[str, Named[Any]]
# objectives under which training raises the outputs of the labels a client holds
RAISES_HELD = ("cross_entropy", "fedrs")


def check_neighbours(resolved: Table) -> None:
    """Raise a RecipeError for tables that make no sense together."""
    rules = {stage: rule_of(resolved, stage) for stage in RULE_STAGES}
    _check_pipeline(resolved)
    _check_needs(resolved, rules)
    _check_order(resolved, rules)
    _check_devices(resolved, rules["selection"])
    _check_head(resolved, rules)
    _check_guard(resolved, rules)
    if "finish" in resolved:
        _check_finish(resolved, rules["procedure"])
    rehearse(rules["selection"], resolved["run"]["clients_per_round"])
    optimizer = resolved["local"]["optimizer"]
    if optimizer != "sgd" and resolved["local"]["momentum"]:
        remedy = "Set it to 0 or use optimizer = 'sgd'"
        raise RecipeError("local.momentum", f"has no meaning for {optimizer}", remedy)
    if (resolved["local"]["schedule"] == "step") != (resolved["local"]["step_every"] > 0):
        what = f"is {resolved['local']['step_every']}, schedule is {resolved['local']['schedule']}"
        remedy = "With schedule = 'step' give rounds between steps, else leave it out"
        raise RecipeError("local.step_every", what, remedy)
    job = job_of(resolved, rules)  # rules refuse local steps their mathematics does not allow
    _check_objective(resolved, job)
    if "loss" in rules["procedure"].rule.needs() and job.report_loss != "start":
        what = "needs the loss of the model a client receives"
        where = f"procedure {rules['procedure'].name}"
        raise RecipeError(where, what, "Set local.report_loss = 'start'")


def _check_objective(resolved: Table, job: LocalJob) -> None:
    """An objective refuses options that make no sense, or that need what nobody measures."""
    if needs_shares(job):
        if "signal" not in resolved:
            what = "needs the federation's label shares"
            raise RecipeError(f"objective {job.objective}", what, "Add a [signal] to the recipe")
        job = replace(job, label_shares=(0.5, 0.5))
    loss_for(job, np.array([1, 0]))


def _check_pipeline(resolved: Table) -> None:
    """Each optional stage builds on the one before it."""
    order = [name for name in OPTIONAL_STAGES if name in resolved]
    if order != list(OPTIONAL_STAGES[: len(order)]):
        missing = next(name for name in OPTIONAL_STAGES if name not in resolved)
        what = f"[{order[-1]}] needs [{missing}] before it"
        raise RecipeError("recipe", what, f"Add [{missing}] or remove [{order[-1]}]")


def _check_needs(resolved: Table, rules: Rules) -> None:
    """A rule that looks at labels or groups needs a stage that finds them; what turns take is told
    to procedures only.
    """
    for stage in ("selection", "aggregation"):
        if "pace" in rules[stage].rule.needs():
            where, what = f"{stage} {rules[stage].name}", "what a turn takes is told to procedures"
            raise RecipeError(where, what, "Use view.population, or a procedure")
    for stage in ("selection", "procedure", "aggregation"):
        wanted = {*rules[stage].rule.needs()} & {*OPTIONAL_STAGES}
        for missing in sorted(wanted - {*resolved}):
            remedy = f"Add [{missing}] to the recipe, or choose another {stage}"
            raise RecipeError(f"{stage} {rules[stage].name}", f"needs a [{missing}]", remedy)


def _check_order(resolved: Table, rules: Rules) -> None:
    """What the order of training makes impossible."""
    procedure, server = rules["procedure"], rules["aggregation"]
    if procedure.rule.hands_on and server.rule.corrects:
        what = (
            "has no meaning where clients train on each other's models "
            f"(procedure {procedure.name})"
        )
        raise RecipeError(f"aggregation {server.name}", what, "Use procedure.use = 'parallel'")
    if procedure.rule.corrects and server.rule.corrects:
        what = f"corrects gradients, and so does procedure {procedure.name}"
        remedy = "Use aggregation.use = 'mean', or another procedure"
        raise RecipeError(f"aggregation {server.name}", what, remedy)
    most = min(resolved["run"]["clients_per_round"], resolved["data"]["clients"])
    if procedure.name == "chains" and resolved["procedure"]["chains"] > most:
        what = f"{resolved['procedure']['chains']} chains for {most} clients a round"
        remedy = f"Give at most {most}, or let more clients train"
        raise RecipeError("procedure.chains", what, remedy)


def _check_devices(resolved: Table, selection: Named[Any]) -> None:
    """A rule that looks at latencies, SNRs or the server's own examples needs them."""
    where, wanted = f"selection {selection.name}", selection.rule.needs()
    if "latency" in wanted and resolved["devices"]["classes"] == "none":
        raise RecipeError(where, "needs to know latencies", "Set devices.classes = 'haccs'")
    if "snr" in wanted and not resolved["devices"]["snr_db"]:
        remedy = "Set devices.snr_db = [0, 30]"
        raise RecipeError(where, "needs to know signal-to-noise ratios", remedy)
    if selection.rule.uses_auxiliary and not resolved["data"]["auxiliary"]:
        what = "needs examples that the server itself holds"
        raise RecipeError(where, what, "Set data.auxiliary, for example to 100")


def _check_guard(resolved: Table, rules: Rules) -> None:
    """What is done against hostile clients, where it can be done."""
    guard, server, procedure = guard_of(resolved), rules["aggregation"], rules["procedure"]
    where = f"aggregation {server.name}"
    own = server.rule.corrects or server.rule.reads_head or "steps" in server.rule.needs()
    if guard.bucket > 1 and own:
        what = "needs to know whose model is whose, and buckets mix them"
        raise RecipeError(where, what, "Set aggregation.bucket = 1")
    if guard.verify and not resolved["data"]["auxiliary"]:
        what = "needs examples that the server itself holds"
        raise RecipeError("aggregation.verify", what, "Set data.auxiliary, for example to 100")
    if guard.verify and resolved["procedure"].get("relay") == "d2d":
        what = "cannot look at models that devices hand to each other"
        raise RecipeError("aggregation.verify", what, "Set procedure.relay = 'server'")
    if server.rule.compares and procedure.name == "sequential":
        what = "compares models, and a sequential round ends with one"
        raise RecipeError(
            where, what, "Use procedure.use = 'chains', or aggregation 'clipped_mean'"
        )
    if server.rule.reads_head and (
        resolved["objective"]["use"] not in RAISES_HELD or procedure.rule.corrects
    ):
        what = "reads labels from updates, which this objective or procedure changes"
        remedy = f"Use an objective of {', '.join(RAISES_HELD)}, and another procedure than fedsoft"
        raise RecipeError(where, what, remedy)


def _check_head(resolved: Table, rules: Rules) -> None:
    """What reads the output layer's updates needs one that is trained."""
    head, selection = resolved["model"].get("head", "trained"), rules["selection"]
    if head == "trained":
        return
    readers = {
        "model.head_init = 'bacsa'": resolved["model"]["head_init"] == "bacsa",
        "signal estimated": resolved.get("signal", {}).get("use") == "estimated",
        f"selection {selection.name}": selection.rule.learns_from == "last"
        or selection.rule.uses_auxiliary,
        f"aggregation {rules['aggregation'].name}": rules["aggregation"].rule.reads_head,
        "procedure.cache = 'last'": resolved["procedure"].get("cache") == "last",
    }
    for reader in (name for name, reads in readers.items() if reads):
        what = f"reads the output layer, which model.head = '{head}' does not train"
        raise RecipeError(reader, what, "Use model.head = 'trained'")


def _check_finish(resolved: Table, procedure: Named[Any]) -> None:
    """An output layer is fitted anew for one model; bodies are put side by side if there are
    several.
    """
    finish = rule_of(resolved, "finish")
    where, several = f"finish {finish.name}", procedure.rule.several_models
    if resolved["model"].get("head", "trained") != "trained":
        what = "needs an output layer that is trained"
        raise RecipeError(where, what, "Use model.head = 'trained'")
    if isinstance(finish.rule, CalibrationRule) and several:
        what = f"needs one model, procedure {procedure.name} has several"
        raise RecipeError(where, what, "Use another procedure, or no [finish]")
    budgets = [name for name in ("max_seconds", "max_megabytes") if resolved["run"][name]]
    if budgets and not isinstance(finish.rule, CalibrationRule):
        what = f"nobody knows beforehand what finish {finish.name} takes"
        raise RecipeError(f"run.{budgets[0]}", what, "Set it to 0 and give run.rounds")
    if isinstance(finish.rule, SecondActRule) and not several:
        what = f"needs a model per group, procedure {procedure.name} has one in all"
        raise RecipeError(where, what, "Use procedure.use = 'per_cluster'")
