"""From a resolved recipe to what the loop plays."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fedskew.accounting.devices import Devices
from fedskew.loop.guard import Guard
from fedskew.loop.method import Method, Named, Stage, named
from fedskew.loop.trust.options import Trust
from fedskew.recipe.catalogue import OPTIONAL_STAGES, TEXTS, Table, find
from fedskew.recipe.schema import options_of
from fedskew.types import LocalJob, SecondActRule

RULE_STAGES = ("selection", "procedure", "aggregation")
GUARDS = options_of(Guard)
NOT_THE_LOOPS = (
    "checkpoint_seconds",
    "energy",
    "device",
    "max_seconds",
    "max_megabytes",
)  # [run] options that concern only the driver
# [local] options that the loop sees to
NOT_THE_CLIENTS = ("lr_decay", "schedule", "step_every", "step_factor", "bn")
# Options that older recipes did not have to say: with these values they decide nothing.
SAID_LATER: dict[str, Table] = {
    "faults": {"hostile": None},
    "model": {"head": "trained"},
    "local": {"schedule": "constant", "step_every": 0, "step_factor": 0.1},
    "aggregation": asdict(Guard()),
    "run": {"device": "cpu", "served_rounds": 1, "max_seconds": 0.0, "max_megabytes": 0.0},
    "finish": {"clients": 0},
}


def method_of(resolved: Mapping[str, Any]) -> Method:
    """The rules and numbers the loop plays, from a resolved recipe."""
    rules = {stage: rule_of(resolved, stage) for stage in RULE_STAGES}
    stages = {name: stage_of(resolved, name) for name in OPTIONAL_STAGES}
    finish = rule_of(resolved, "finish") if "finish" in resolved else None
    run = {key: value for key, value in resolved["run"].items() if key not in NOT_THE_LOOPS}
    local = {key: resolved["local"][key] for key in NOT_THE_CLIENTS}
    tariff = Devices(**resolved["devices"]).tariff(resolved["faults"]["deadline_seconds"])
    more: dict[str, Any] = {
        "finish": finish,
        "job": job_of(resolved, rules),
        "trust": trust_of(resolved),
        "guard": guard_of(resolved),
    }
    return Method(**rules, **stages, **local, tariff=tariff, **more, **run)  # type: ignore[arg-type]


def trust_of(resolved: Mapping[str, Any]) -> Trust:
    """Whether and how what clients say is checked."""
    trained = resolved["model"].get("head", "trained") == "trained"
    return Trust(**resolved.get("trust", {}), head_trained=trained)


def num_rounds(resolved: Mapping[str, Any]) -> int:
    """How many rounds a run plays, those of its [finish] included."""
    rounds = int(resolved["run"]["rounds"])
    if "finish" not in resolved:
        return rounds
    rule = rule_of(resolved, "finish").rule
    return rounds + (rule.num_rounds if isinstance(rule, SecondActRule) else 1)


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
    target, options = find(stage, use), options_in(resolved, stage)
    if stage == "aggregation":
        own = options_of(target)
        options = {key: v for key, v in options.items() if key in own or key not in GUARDS}
    return named(stage, use, target, options)


def guard_of(resolved: Mapping[str, Any]) -> Guard:
    """What the aggregation table says against hostile clients, whatever its rule."""
    return Guard(**{key: v for key, v in resolved["aggregation"].items() if key in GUARDS})


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
    if not content.get("trust", {}).get("on"):
        content.pop("trust", None)
    for table, later in SAID_LATER.items():
        if table == "finish" and table not in content:
            continue
        content[table] = {
            key: value
            for key, value in content.get(table, {}).items()
            if key not in later or value != later[key]
        }
    content["run"] = {
        key: value
        for key, value in content["run"].items()
        if key not in ("checkpoint_seconds", "min_ok")
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=list).encode()).hexdigest()[
        :12
    ]


def options_in(resolved: Mapping[str, Any], stage: str) -> Table:
    """The options of a table, without its ``use``."""
    return {key: value for key, value in resolved[stage].items() if key != "use"}
