"""Recipes: TOML (or a dict) in, a checked :class:`Method` out. A stage function's keyword-only signature is its schema.

A recipe has one table per stage (``use`` plus options) and ``[data] [partition] [model] [local] [faults] [run]``; ``extends``
names another recipe, one level deep. Everything is checked before anything runs, and what was left out is filled in, so the
resolved recipe says everything about a run but its seed.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from fedskew import aggregation, clustering, data, distance, models, procedure, selection, signal
from fedskew.data.partitions import PARTITIONS
from fedskew.devices import Devices
from fedskew.errors import RecipeError, did_you_mean
from fedskew.method import Method, Stage
from fedskew.rehearsal import rehearse
from fedskew.runtime.faults import Faults
from fedskew.schema import Option, check_value, options_of
from fedskew.types import LocalJob, Stateful, needs_of

Table = dict[str, Any]

REGISTRIES: dict[str, Mapping[str, Any]] = {
    "partition": PARTITIONS,
    "model": models.MODELS,
    "signal": signal.SOURCES,
    "distance": distance.DISTANCES,
    "clustering": clustering.CLUSTERINGS,
    "selection": selection.SELECTIONS,
    "procedure": procedure.PROCEDURES,
    "aggregation": aggregation.AGGREGATIONS,
}
OPTIONAL_STAGES = ("signal", "distance", "clustering")
DEFAULT_USE = {"partition": "iid", "selection": "uniform", "procedure": "parallel", "aggregation": "mean"}
REPORTED_LOSS = {"piggyback": "start", "subset": "start", "post": "end"}  # selection.loss_source -> local.report_loss
TEXTS = ("name", "description", "citation", "extends")


@dataclass(frozen=True)
class DataOptions:
    """``[data]``: which examples, and how clients get test sets."""

    use: str = "digits"
    folder: str = ""  # where files lie that cannot be fetched
    clients: int = 20  # K
    client_test: Literal["auto", "split", "matched", "none"] = "auto"
    test_fraction: float = 0.2  # of every client's rows, for client_test = "split"
    auxiliary: int = 0  # examples the server keeps for itself, equally many of each class, before clients get theirs
    holdout: float = 0.0  # share of every client's training data that is set aside and never used


@dataclass(frozen=True)
class LocalOptions(LocalJob):
    """``[local]``: what a client does, how its learning rate falls from round to round, whose BatchNorm statistics it has."""

    lr_decay: float = 1.0
    bn: Literal["average", "local"] = "average"  # local: each client goes on with, and is tested with, statistics of its own


@dataclass(frozen=True)
class RunOptions:
    """``[run]``: how long, how many clients a round, how often to look."""

    rounds: int = 20
    clients_per_round: int = 10
    evaluate_every: int = 1
    evaluate_clients_every: int = 0  # the global model on every client's own test set; 0 = only after the last round
    min_ok: int = 1
    resend: bool = False  # charge a second download to clients that hold the model already, as some papers do
    checkpoint_seconds: float = 2.0  # at most this much work is repeated after a kill; 0 = every round
    energy: Literal["modelled", "measured", "codecarbon"] = "modelled"  # measured: clients train alone, one at a time


PLAIN_TABLES: dict[str, type] = {
    "data": DataOptions,
    "local": LocalOptions,
    "devices": Devices,
    "run": RunOptions,
    "faults": Faults,
}
LIMITS: dict[str, tuple[float, float]] = {  # option -> smallest and largest legal value
    "data.clients": (1, 1e9),
    "data.auxiliary": (0, 1e9),
    "data.holdout": (0, 0.99),
    "data.test_fraction": (0.01, 0.99),
    "local.epochs": (1, 1e6),
    "local.batch": (1, 1e9),
    "local.lr": (0, 1e6),
    "local.momentum": (0, 0.9999),
    "local.weight_decay": (0, 1e6),
    "local.prox_mu": (0, 1e12),
    "local.clip_norm": (0, 1e12),
    "local.max_examples": (0, 1e12),
    "local.lr_decay": (1e-9, 1),
    "procedure.chains": (0, 1e9),
    "procedure.theta": (1e-9, 1e9),
    "procedure.theta_classes": (0, 1e9),
    "procedure.epsilon": (1e-300, 0.5),
    "procedure.refresh": (0, 1e9),
    "procedure.hysteresis": (0, 0.99),
    "procedure.pilot_rounds": (0, 1e9),
    "run.rounds": (0, 1e9),
    "run.clients_per_round": (1, 1e9),
    "run.evaluate_every": (0, 1e9),
    "run.evaluate_clients_every": (0, 1e9),
    "run.min_ok": (0, 1e9),
    "run.checkpoint_seconds": (0, 1e9),
}


# ---------------------------------------------------------------- reading


def shipped() -> dict[str, Path]:
    """Recipes that come with the package, by name."""
    folder = Path(str(resources.files("fedskew") / "recipes"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load(source: str | Path | Mapping[str, Any]) -> Table:
    """Read a recipe: the name of a shipped one, a path to a TOML file, or a dict; ``extends`` is followed once."""
    raw = _deep(source) if isinstance(source, Mapping) else _read(str(source))
    parent = raw.get("extends")
    if not parent:
        return raw
    beside = Path(str(source)).parent / str(parent) if not isinstance(source, Mapping) else Path(str(parent))
    base = _read(str(beside if str(parent) not in shipped() and beside.is_file() else parent))
    if "extends" in base:
        raise RecipeError(str(source), f"'{parent}' itself extends '{base['extends']}'", "Recipes extend one level deep")
    return merge(base, raw)


def _read(source: str) -> Table:
    known = shipped()
    path = known.get(source) or Path(source)
    try:
        if source not in known and not path.is_file():
            raise RecipeError("recipe", f"no recipe or file called '{source}'", did_you_mean(source, known))
        raw = tomllib.loads(path.read_text(encoding="utf8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise RecipeError(str(path), f"cannot be read as TOML: {error}", "Correct the file") from None
    raw.setdefault("name", path.stem)
    return raw


def _deep(value: Any) -> Any:
    return {k: _deep(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> Table:
    """``top`` over ``base``, table by table; a table that names another ``use`` replaces the old one whole.

    >>> merge({"local": {"lr": 1, "batch": 2}}, {"local": {"lr": 3}})
    {'local': {'lr': 3, 'batch': 2}}
    """
    merged: Table = _deep(base)
    for key, value in top.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping) and _same_kind(key, old, value):
            merged[key] = {**old, **value}
        else:
            merged[key] = _deep(value)
    return merged


def _same_kind(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether options carry over: the function stays the same. ``[data]`` options mean the same for every dataset."""
    return "use" not in new or new["use"] == old.get("use") or key == "data"


def override(raw: Mapping[str, Any], assignments: Mapping[str, Any]) -> Table:
    """Apply ``{"local.lr": 0.1}``-style settings; values given as text are read as TOML where that works.

    >>> override({}, {"selection.use": "uniform", "local.lr": "0.1"})
    {'selection': {'use': 'uniform'}, 'local': {'lr': 0.1}}
    """
    changed: Table = _deep(raw)
    for key in sorted(assignments, key=lambda k: not k.endswith(".use")):  # "use" first: it empties the table
        table, _, option = key.partition(".")
        if not option or "." in option:
            raise RecipeError(f"--set {key}", "not of the form table.option=value", "Example: --set local.lr=0.1")
        changed = merge(changed, {table: {option: _parsed(assignments[key])}})
    return changed


def read_assignments(given: Sequence[str]) -> Table:
    """``["local.lr=0.1"]``, as it stands behind ``--set``, as a mapping for :func:`override`.

    >>> read_assignments(["local.lr = 0.1"])
    {'local.lr': '0.1'}
    """
    pairs = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise RecipeError(f"--set {text}", "has no '='", "Example: --set local.lr=0.1")
        pairs[key.strip()] = value.strip()
    return pairs


def _parsed(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


# ---------------------------------------------------------------- checking


def resolve(raw: Mapping[str, Any]) -> Table:
    """Check everything and fill in every default. The result can be written to a file and read back."""
    known = {*REGISTRIES, *PLAIN_TABLES, *TEXTS}
    for key, value in raw.items():
        if key == "sweep":
            raise RecipeError("recipe", "has a [sweep]", "Expand it first: expand(recipe) gives one recipe per combination")
        if key not in known:
            raise RecipeError("recipe", f"unknown table or entry '{key}'", did_you_mean(key, known))
        if key in TEXTS and not isinstance(value, str):
            raise RecipeError(f"recipe.{key}", f"is {value!r}, not a text", f'Write {key} = "..."')
        if key not in TEXTS and not isinstance(value, Mapping):
            raise RecipeError(f"recipe.{key}", f"is {value!r}, not a table", f"Write [{key}] and its options below it")
    resolved: Table = {"name": str(raw.get("name", "custom"))}
    resolved |= {key: str(raw[key]) for key in ("description", "citation") if key in raw}
    for name, schema in PLAIN_TABLES.items():
        resolved[name] = check_options(name, options_of(schema), raw.get(name, {}))
        schema(**resolved[name])  # tables with rules of their own check them here
    for name in REGISTRIES:
        table = dict(raw.get(name, {}))
        if name in OPTIONAL_STAGES and not table:
            continue
        table.setdefault("use", DEFAULT_USE.get(name, _default_model(resolved) if name == "model" else None))
        resolved[name] = _resolve_stage(name, table)
    _check_neighbours(resolved)
    return resolved


def _default_model(resolved: Table) -> str:
    info = data.DATASETS.get(resolved["data"]["use"])
    return (info.default_model if info else "") or "mlp"


def _resolve_stage(name: str, table: Table) -> Table:
    if table.get("use") is None:
        raise RecipeError(f"recipe.{name}", "has no 'use'", f"Choose one of: {', '.join(sorted(REGISTRIES[name]))}")
    if name == "model" and table["use"] == "custom":
        return table
    function = find(name, table["use"])
    options = {key: value for key, value in table.items() if key != "use"}
    return {"use": table["use"], **check_options(name, stage_options(name, function), options)}


def stage_options(stage: str, function: Any) -> Mapping[str, Option]:
    """The options of a stage function; every model also takes those of :func:`fedskew.models.build`."""
    return {**options_of(function), **(options_of(models.build) if stage == "model" else {})}


def find(stage: str, use: str) -> Any:
    """A stage function by its registered name, or by ``"package.module:function"``."""
    registry = REGISTRIES[stage]
    if not isinstance(use, str):
        raise RecipeError(f"{stage}.use", f"{use!r} is not a name", f"Choose one of: {', '.join(sorted(registry))}")
    if use in registry:
        return registry[use]
    refused = getattr(distance, "REFUSED", {}) if stage == "distance" else {}
    if use in refused:
        raise RecipeError(f"{stage}.use", f"'{use}' is ambiguous", refused[use])
    module_name, colon, function_name = str(use).partition(":")
    if not colon:
        raise RecipeError(f"{stage}.use", f"unknown {stage} '{use}'", did_you_mean(str(use), registry))
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise RecipeError(f"{stage}.use", f"cannot import '{use}': {error}", "Check that it is on PYTHONPATH") from None
    if not callable(function) and not isinstance(function, Stateful):
        raise RecipeError(f"{stage}.use", f"'{use}' is not a function", "Name a function of the module")
    return function


def check_options(table: str, options: Mapping[str, Option], given: Mapping[str, Any]) -> Table:
    """Given options checked against the schema, with defaults filled in."""
    for key in given:
        if key not in options:
            raise RecipeError(f"recipe.{table}", f"unknown option '{key}'", did_you_mean(key, options))
    checked: Table = {}
    for key, option in options.items():
        if key not in given and option.required:
            raise RecipeError(f"recipe.{table}", f"option '{key}' is missing", f"Add {key} = ... to [{table}]")
        where = f"{table}.{key}"
        value = check_value(where, option, given[key]) if key in given else option.default
        low, high = LIMITS.get(where, (float("-inf"), float("inf")))
        if isinstance(value, int | float) and not low <= value <= high:
            raise RecipeError(where, f"{value} is out of range", f"Give a number from {low:g} to {high:g}")
        checked[key] = value
    return checked


def _check_neighbours(resolved: Table) -> None:
    """Tables that only make sense together."""
    order = [name for name in OPTIONAL_STAGES if name in resolved]
    if order != list(OPTIONAL_STAGES[: len(order)]):
        missing = next(name for name in OPTIONAL_STAGES if name not in resolved)
        raise RecipeError("recipe", f"[{order[-1]}] needs [{missing}] before it", f"Add [{missing}] or remove [{order[-1]}]")
    for stage in ("selection", "procedure"):
        use = resolved[stage]["use"]
        for missing in sorted((needs_of(find(stage, use), _options(resolved, stage)) & set(OPTIONAL_STAGES)) - set(resolved)):
            remedy = f"Add [{missing}] to the recipe, or choose another {stage}"
            raise RecipeError(f"{stage} {use}", f"needs a [{missing}]", remedy)
    _check_order(resolved)
    _check_means(resolved)
    chosen = _stage(resolved, "selection")
    if chosen is not None:
        rehearse(chosen, resolved["run"]["clients_per_round"])
    if resolved["local"]["optimizer"] == "adam" and resolved["local"]["momentum"]:
        raise RecipeError("local.momentum", "has no meaning for adam", "Set it to 0 or use optimizer = 'sgd'")
    job_of(resolved)  # a server rule refuses local steps that its mathematics does not allow


def _options(resolved: Mapping[str, Any], stage: str) -> Table:
    return {key: value for key, value in resolved[stage].items() if key != "use"}


def _check_order(resolved: Table) -> None:
    """What the order of training makes impossible."""
    use, server = resolved["procedure"]["use"], resolved["aggregation"]["use"]
    rule = find("aggregation", server)
    if use in procedure.HANDING_ON and isinstance(rule, Stateful) and rule.corrections is not None:
        what = f"has no meaning where clients train on each other's models (procedure {use})"
        raise RecipeError(f"aggregation {server}", what, "Use procedure.use = 'parallel'")
    most = min(resolved["run"]["clients_per_round"], resolved["data"]["clients"])
    if use == "chains" and resolved["procedure"]["chains"] > most:
        what = f"{resolved['procedure']['chains']} chains for {most} clients a round"
        raise RecipeError("procedure.chains", what, f"Give at most {most}, or let more clients train")
    told = REPORTED_LOSS.get(resolved["selection"].get("loss_source", ""), resolved["local"]["report_loss"])
    if "loss" in needs_of(find("procedure", use), _options(resolved, "procedure")) and told != "start":
        what = "needs the loss of the model a client receives"
        raise RecipeError(f"procedure {use}", what, "Set local.report_loss = 'start'")


def _check_means(resolved: Table) -> None:
    """A rule that looks at latencies or SNRs needs devices that have them."""
    rule, where = find("selection", resolved["selection"]["use"]), f"selection {resolved['selection']['use']}"
    wanted = needs_of(rule, resolved["selection"])
    if "latency" in wanted and resolved["devices"]["classes"] == "none":
        raise RecipeError(where, "needs to know latencies", "Set devices.classes = 'haccs'")
    if "snr" in wanted and not resolved["devices"]["snr_db"]:
        raise RecipeError(where, "needs to know signal-to-noise ratios", "Set devices.snr_db = [0, 30]")
    if isinstance(rule, Stateful) and rule.auxiliary and not resolved["data"]["auxiliary"]:
        raise RecipeError(where, "needs examples that the server itself holds", "Set data.auxiliary, for example to 100")


def expand(raw: Mapping[str, Any]) -> Iterator[Table]:
    """One recipe per combination of ``[sweep]``; without one, the recipe itself.

    >>> [r["local"]["lr"] for r in expand({"sweep": {"local.lr": [0.1, 0.2]}})]
    [0.1, 0.2]
    """
    base = {key: value for key, value in raw.items() if key != "sweep"}
    axes = raw.get("sweep", {})
    if not isinstance(axes, Mapping):
        raise RecipeError("sweep", f"is {axes!r}, not a table", 'Write [sweep] and below it "local.lr" = [0.1, 0.2]')
    for key, values in axes.items():
        if not isinstance(values, list | tuple) or not values:
            raise RecipeError(f"sweep.{key}", f"is {values!r}", 'Give a list of values: "local.lr" = [0.1, 0.2]')
    for combination in itertools.product(*axes.values()):
        yield override(base, dict(zip(axes, combination, strict=True))) if axes else base


# ---------------------------------------------------------------- using


def method_of(resolved: Mapping[str, Any]) -> Method:
    """The functions and numbers the loop plays, from a resolved recipe."""
    run = {key: value for key, value in resolved["run"].items() if key not in ("checkpoint_seconds", "energy")}
    tariff = Devices(**resolved["devices"]).tariff(resolved["faults"]["deadline_seconds"])
    stages = {name: _stage(resolved, name) for name in (*OPTIONAL_STAGES, "selection", "procedure", "aggregation")}
    local = {key: resolved["local"][key] for key in ("lr_decay", "bn")}
    return Method(**stages, **local, job=job_of(resolved), tariff=tariff, **run)  # type: ignore[arg-type]


def job_of(resolved: Mapping[str, Any]) -> LocalJob:
    """What clients do, as the selection and the server rule want it."""
    local = {key: value for key, value in resolved["local"].items() if key not in ("lr_decay", "bn")}
    local["report_loss"] = REPORTED_LOSS.get(resolved["selection"].get("loss_source", ""), local["report_loss"])
    job = LocalJob(**local)
    for name in ("aggregation", "procedure"):
        rule = find(name, resolved[name]["use"])
        if isinstance(rule, Stateful) and rule.job is not None:
            job = rule.job(job, **_options(resolved, name))
    return job


def _stage(resolved: Mapping[str, Any], name: str) -> Stage | None:
    if name not in resolved:
        return None
    return Stage(resolved[name]["use"], find(name, resolved[name]["use"]), _options(resolved, name))


def fingerprint(resolved: Mapping[str, Any]) -> str:
    """A short name for all that decides a run's numbers but its seed (not how often it is saved, or when it gives up)."""
    content = {key: value for key, value in resolved.items() if key not in TEXTS}
    content["run"] = {key: value for key, value in resolved["run"].items() if key not in ("checkpoint_seconds", "min_ok")}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=list).encode()).hexdigest()[:12]
