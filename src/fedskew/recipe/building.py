"""From a resolved recipe to what the loop plays."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from fedskew.accounting.devices import Devices
from fedskew.loop.method import Method, Stage
from fedskew.recipe.catalogue import OPTIONAL_STAGES, REPORTED_LOSS, TEXTS, Table, find
from fedskew.types import LocalJob, Stateful


def method_of(resolved: Mapping[str, Any]) -> Method:
    """The functions and numbers the loop plays, from a resolved recipe."""
    run = {
        key: value
        for key, value in resolved["run"].items()
        if key not in ("checkpoint_seconds", "energy")
    }
    tariff = Devices(**resolved["devices"]).tariff(resolved["faults"]["deadline_seconds"])
    stages = {
        name: stage_of(resolved, name)
        for name in (*OPTIONAL_STAGES, "selection", "procedure", "aggregation")
    }
    local = {key: resolved["local"][key] for key in ("lr_decay", "bn")}
    return Method(**stages, **local, job=job_of(resolved), tariff=tariff, **run)  # type: ignore[arg-type]


def job_of(resolved: Mapping[str, Any]) -> LocalJob:
    """What clients do, as the selection and the server rule want it."""
    local = {
        key: value for key, value in resolved["local"].items() if key not in ("lr_decay", "bn")
    }
    local["report_loss"] = REPORTED_LOSS.get(
        resolved["selection"].get("loss_source", ""), local["report_loss"]
    )
    job = LocalJob(**local)
    for name in ("aggregation", "procedure"):
        rule = find(name, resolved[name]["use"])
        if isinstance(rule, Stateful) and rule.job is not None:
            job = rule.job(job, **options_in(resolved, name))
    return job


def stage_of(resolved: Mapping[str, Any], name: str) -> Stage | None:
    """A slot of the pipeline as the recipe fills it; None where it leaves it empty."""
    if name not in resolved:
        return None
    return Stage(
        resolved[name]["use"], find(name, resolved[name]["use"]), options_in(resolved, name)
    )


def fingerprint(resolved: Mapping[str, Any]) -> str:
    """A short name for all that decides a run's numbers but its seed (not how often it is saved,
    or when it gives up).
    """
    content = {key: value for key, value in resolved.items() if key not in TEXTS}
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
