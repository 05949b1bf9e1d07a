"""From a resolved recipe to what the loop plays."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from fedskew.accounting.devices import Devices
from fedskew.loop.method import Method, Named, Stage, named
from fedskew.recipe.catalogue import OPTIONAL_STAGES, TEXTS, Table, find
from fedskew.types import LocalJob

RULE_STAGES = ("selection", "procedure", "aggregation")
NOT_THE_LOOPS = ("checkpoint_seconds", "energy")  # [run] options that concern only the driver
NOT_THE_CLIENTS = ("lr_decay", "bn")  # [local] options that the loop sees to


def method_of(resolved: Mapping[str, Any]) -> Method:
    """The rules and numbers the loop plays, from a resolved recipe."""
    rules = {stage: rule_of(resolved, stage) for stage in RULE_STAGES}
    stages = {name: stage_of(resolved, name) for name in OPTIONAL_STAGES}
    run = {key: value for key, value in resolved["run"].items() if key not in NOT_THE_LOOPS}
    local = {key: resolved["local"][key] for key in NOT_THE_CLIENTS}
    tariff = Devices(**resolved["devices"]).tariff(resolved["faults"]["deadline_seconds"])
    job = job_of(resolved, rules)
    return Method(**rules, **stages, **local, job=job, tariff=tariff, **run)  # type: ignore[arg-type]


def job_of(resolved: Mapping[str, Any], rules: Mapping[str, Named[Any]]) -> LocalJob:
    """What clients do, as the rules want it."""
    local = {key: v for key, v in resolved["local"].items() if key not in NOT_THE_CLIENTS}
    wanted = rules["selection"].rule.loss_report
    local["report_loss"] = wanted or local["report_loss"]
    options = tuple(options_in(resolved, "objective").items())
    use = resolved["objective"]["use"]
    job = LocalJob(**local, objective=use, objective_options=options)
    for stage in ("aggregation", "procedure"):
        job = rules[stage].rule.job(job)
    return job


def rule_of(resolved: Mapping[str, Any], stage: str) -> Named[Any]:
    """The rule of a stage, with its options in it."""
    use = resolved[stage]["use"]
    return named(stage, use, find(stage, use), options_in(resolved, stage))


def stage_of(resolved: Mapping[str, Any], name: str) -> Stage | None:
    """A slot of the pipeline as the recipe fills it; None where it leaves it empty."""
    if name not in resolved:
        return None
    use = resolved[name]["use"]
    return Stage(use, find(name, use), options_in(resolved, name))


def fingerprint(resolved: Mapping[str, Any]) -> str:
    """A short name for all that decides a run's numbers but its seed (not how often it is saved,
    or when it gives up).
    """
    content = {key: value for key, value in resolved.items() if key not in TEXTS}
    if content.get("objective") == {"use": "cross_entropy"}:
        del content["objective"]  # older recipes did not have to say it
    content["run"] = {
        key: value
        for key, value in resolved["run"].items()
        if key not in ("checkpoint_seconds", "min_ok")
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=list).encode()).hexdigest()[
        :12
    ]


def options_in(resolved: Mapping[str, Any], stage: str) -> Table:
    """The options of a table, without its ``use``."""
    return {key: value for key, value in resolved[stage].items() if key != "use"}
