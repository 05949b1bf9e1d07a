"""What a recipe may contain: the tables, the registered functions, their options and the limits
of numbers.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal

from fedskew import (
    aggregation,
    clustering,
    distance,
    finish,
    models,
    objective,
    procedure,
    selection,
    signal,
)
from fedskew.accounting.devices import Devices
from fedskew.data.partitions import PARTITIONS
from fedskew.errors import RecipeError, did_you_mean
from fedskew.foreign import ForeignName
from fedskew.loop.guard import Guard
from fedskew.loop.trust.options import Trust
from fedskew.recipe.schema import Option, check_value, inner_table, options_of
from fedskew.runtime.faults import Faults
from fedskew.types import LocalJob
from fedskew.types.rules import RULES

Table = dict[str, Any]

REGISTRIES: dict[str, Mapping[str, Any]] = {
    "partition": PARTITIONS,
    "model": models.MODELS,
    "signal": signal.SOURCES,
    "distance": distance.DISTANCES,
    "clustering": clustering.CLUSTERINGS,
    "selection": selection.SELECTIONS,
    "procedure": procedure.PROCEDURES,
    "objective": objective.OBJECTIVES,
    "aggregation": aggregation.AGGREGATIONS,
    "finish": finish.FINISHES,
}
OPTIONAL_STAGES = ("signal", "distance", "clustering")  # each builds on the one before it
OPTIONAL_TABLES = (*OPTIONAL_STAGES, "finish")
DEFAULT_USE = {
    "partition": "iid",
    "selection": "uniform",
    "procedure": "parallel",
    "objective": "cross_entropy",
    "aggregation": "mean",
}
TEXTS = ("name", "description", "citation", "extends")


@dataclass(frozen=True)
class DataOptions:
    """``[data]``: which examples, and how clients get test sets."""

    use: str = "digits"
    folder: str = ""  # where files lie that cannot be fetched
    clients: int = 20  # K
    client_test: Literal["auto", "split", "matched", "none"] = "auto"
    test_fraction: float = 0.2  # of every client's rows, for client_test = "split"
    # examples the server keeps for itself, equally many of each class, before clients get theirs
    auxiliary: int = 0
    holdout: float = 0.0  # share of every client's training data that is set aside and never used


@dataclass(frozen=True)
class LocalOptions(LocalJob):
    """``[local]``: what a client does, how its learning rate falls from round to round, whose
    BatchNorm statistics it has.
    """

    lr_decay: float = 1.0
    # cosine: down to 0 after the last round; step: times step_factor every step_every rounds
    schedule: Literal["constant", "cosine", "step"] = "constant"
    step_every: int = 0
    step_factor: float = 0.1
    # local: each client goes on with, and is tested with, statistics of its own
    bn: Literal["average", "local"] = "average"


@dataclass(frozen=True)
class RunOptions:
    """``[run]``: how long, how many clients a round, how often to look."""

    rounds: int = 20
    # simulated seconds and megabytes after which no other round begins, [finish] included; 0 = all
    # rounds are played
    max_seconds: float = 0.0
    max_megabytes: float = 0.0
    clients_per_round: int = 10
    evaluate_every: int = 1
    # the global model on every client's own test set; 0 = only after the last round
    evaluate_clients_every: int = 0
    # what is tested and saved: a running mean over about so many last rounds; 1 = the last model
    served_rounds: int = 1
    min_ok: int = 1
    # charge a second download to clients that hold the model already, as some papers do
    resend: bool = False
    # at most this much work is repeated after a kill; 0 = every round
    checkpoint_seconds: float = 2.0
    # measured: clients train alone, one at a time
    energy: Literal["modelled", "measured", "codecarbon"] = "modelled"
    # where models are passed through; never measured by us on anything but cpu
    device: Literal["cpu", "cuda", "mps"] = "cpu"


PLAIN_TABLES: dict[str, type] = {
    "data": DataOptions,
    "local": LocalOptions,
    "devices": Devices,
    "run": RunOptions,
    "faults": Faults,
    "trust": Trust,
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
    "local.step_every": (0, 1e9),
    "local.step_factor": (1e-9, 1),
    "procedure.chains": (0, 1e9),
    "procedure.theta": (1e-9, 1e9),
    "procedure.theta_classes": (0, 1e9),
    "procedure.epsilon": (1e-300, 0.5),
    "procedure.refresh": (0, 1e9),
    "procedure.hysteresis": (0, 0.99),
    "procedure.pilot_rounds": (0, 1e9),
    "finish.clients": (0, 1e9),
    "run.rounds": (0, 1e9),
    "run.max_seconds": (0, 1e12),
    "run.max_megabytes": (0, 1e12),
    "run.clients_per_round": (1, 1e9),
    "run.evaluate_every": (0, 1e9),
    "run.evaluate_clients_every": (0, 1e9),
    "run.served_rounds": (1, 1e9),
    "run.min_ok": (0, 1e9),
    "run.checkpoint_seconds": (0, 1e9),
}


def stage_options(stage: str, function: Any) -> Mapping[str, Option]:
    """The options of a stage function; every model also takes those of
    :func:`fedskew.models.build`, every aggregation those of :class:`fedskew.loop.guard.Guard`.
    """
    common = {"model": models.build, "aggregation": Guard}
    own, more = options_of(function), options_of(common[stage]) if stage in common else {}
    return {**own, **{name: option for name, option in more.items() if name not in own}}


def find(stage: str, use: str) -> Any:
    """A stage function by its registered name, or by ``"package.module:function"``."""
    registry = REGISTRIES[stage]
    if not isinstance(use, str):
        raise RecipeError(
            f"{stage}.use",
            f"{use!r} is not a name",
            f"Choose one of: {', '.join(sorted(registry))}",
        )
    if use in registry:
        return registry[use]
    refused = getattr(distance, "REFUSED", {}) if stage == "distance" else {}
    if use in refused:
        raise RecipeError(f"{stage}.use", f"'{use}' is ambiguous", refused[use])
    module_name, colon, function_name = str(use).partition(":")
    if not colon:
        raise RecipeError(
            f"{stage}.use", f"unknown {stage} '{use}'", did_you_mean(str(use), registry)
        )
    if isinstance(use, ForeignName):
        what = f"'{use}' is code named by a folder or a message, not by you: it is not imported"
        raise RecipeError(f"{stage}.use", what, "Name the recipe file yourself, or use --trust")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except Exception as error:  # it is somebody's code: anything may happen in it
        what = f"cannot import '{use}' ({type(error).__name__}: {error})"
        raise RecipeError(f"{stage}.use", what, "Check that it is on PYTHONPATH") from error
    return _checked(stage, use, function)


def _checked(stage: str, use: str, target: Any) -> Any:
    """Somebody's own function or class, if it can stand in this stage."""
    if not callable(target):
        what = f"'{use}' is not a function"
        raise RecipeError(f"{stage}.use", what, "Name a function of the module")
    if not inspect.isclass(target) or stage not in RULES:
        return target
    kind = RULES[stage][0]
    if not issubclass(target, kind) or not is_dataclass(target):
        what = f"the class '{use}' is no dataclass that derives from {kind.__name__}"
        remedy = f"Write @dataclass(frozen=True) and derive from fedskew.types.{kind.__name__}"
        raise RecipeError(f"{stage}.use", what, remedy)
    if inspect.isabstract(target):
        missing = ", ".join(sorted(target.__abstractmethods__))
        what = f"the class '{use}' has no method {missing}"
        raise RecipeError(f"{stage}.use", what, f"See fedskew.types.{kind.__name__}")
    return target


def check_options(table: str, options: Mapping[str, Option], given: Mapping[str, Any]) -> Table:
    """Given options checked against the schema, with defaults filled in."""
    for key in given:
        if key not in options:
            raise RecipeError(
                f"recipe.{table}", f"unknown option '{key}'", did_you_mean(key, options)
            )
    checked: Table = {}
    for key, option in options.items():
        if key not in given and option.required:
            raise RecipeError(
                f"recipe.{table}", f"option '{key}' is missing", f"Add {key} = ... to [{table}]"
            )
        where = f"{table}.{key}"
        value = _checked_value(where, option, given[key]) if key in given else option.default
        checked[key] = _in_range(where, value)
    return checked


def _in_range(where: str, value: Any) -> Any:
    """A number within its limits; NaN is within none."""
    if isinstance(value, tuple):
        return tuple(_in_range(where, inner) for inner in value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    if value != value:
        raise RecipeError(where, "nan is not a number", "Give a number")
    low, high = LIMITS.get(where, (float("-inf"), float("inf")))
    if not low <= value <= high:
        remedy = f"Give a number from {low:g} to {high:g}"
        raise RecipeError(where, f"{value} is out of range", remedy)
    return value


def _checked_value(where: str, option: Option, value: Any) -> Any:
    """The value in the option's own type; an option that is a table is checked like one."""
    inside = inner_table(option.kind)
    if inside is None or value is None:
        return check_value(where, option, value)
    if not isinstance(value, Mapping):
        remedy = f"Write [{where}] and its options below it"
        raise RecipeError(where, f"is {value!r}, not a table", remedy)
    return check_options(where, options_of(inside), value)
