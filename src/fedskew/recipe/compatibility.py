"""Tables that only make sense together, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedskew.errors import RecipeError
from fedskew.loop.method import Named
from fedskew.objective import change_for
from fedskew.recipe.building import RULE_STAGES, job_of, rule_of
from fedskew.recipe.catalogue import OPTIONAL_STAGES, Table
from fedskew.recipe.dry_run import rehearse

Rules = Mapping[str, Named[Any]]


def check_neighbours(resolved: Table) -> None:
    """Raise a RecipeError for tables that make no sense together."""
    rules = {stage: rule_of(resolved, stage) for stage in RULE_STAGES}
    _check_pipeline(resolved)
    _check_needs(resolved, rules)
    _check_order(resolved, rules)
    _check_devices(resolved, rules["selection"])
    rehearse(rules["selection"], resolved["run"]["clients_per_round"])
    if resolved["local"]["optimizer"] == "adam" and resolved["local"]["momentum"]:
        remedy = "Set it to 0 or use optimizer = 'sgd'"
        raise RecipeError("local.momentum", "has no meaning for adam", remedy)
    job = job_of(resolved, rules)  # rules refuse local steps their mathematics does not allow
    change_for(job, np.array([1, 0]))  # and an objective refuses options that make no sense
    if "loss" in rules["procedure"].rule.needs() and job.report_loss != "start":
        what = "needs the loss of the model a client receives"
        where = f"procedure {rules['procedure'].name}"
        raise RecipeError(where, what, "Set local.report_loss = 'start'")


def _check_pipeline(resolved: Table) -> None:
    """Each optional stage builds on the one before it."""
    order = [name for name in OPTIONAL_STAGES if name in resolved]
    if order != list(OPTIONAL_STAGES[: len(order)]):
        missing = next(name for name in OPTIONAL_STAGES if name not in resolved)
        what = f"[{order[-1]}] needs [{missing}] before it"
        raise RecipeError("recipe", what, f"Add [{missing}] or remove [{order[-1]}]")


def _check_needs(resolved: Table, rules: Rules) -> None:
    """A rule that looks at labels or groups needs a stage that finds them."""
    for stage in ("selection", "procedure"):
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
