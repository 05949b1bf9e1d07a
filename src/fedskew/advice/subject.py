"""The federation that is asked about: label counts, how it trains, how large its model is.

From a recipe (its data are dealt out), a file or table of label counts, a run folder, or a fleet's
clients, which were asked. What is not known is assumed, and said.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.advice.features import Training
from fedskew.advice.forecast import Anchor
from fedskew.errors import RecipeError, RunFolderError
from fedskew.experiment.figures import last_mean
from fedskew.experiment.run import Run
from fedskew.experiment.world import dataset_of, factory_of
from fedskew.measure import (
    Counts,
    counts_of_data,
    counts_of_run,
    counts_of_signal,
    read_counts,
)
from fedskew.recipe import Table, expand, load, names_code, override, resolve, shipped_recipes
from fedskew.records import read_state

PARAMETERS = 100_000  # of a model that nothing is known of
PER_ROUND = 10  # clients a round where only counts are given
OWN = ("data.", "partition.", "faults.hostile")  # --set of these means nothing for counts


@dataclass(frozen=True, eq=False)
class Subject:
    """What is known, or assumed, of one federation."""

    counts: Counts
    recipe: Mapping[str, Any]  # resolved: its federation and local training
    parameters: int  # of the model
    data: str  # name of its data set, "" if not known
    has_data: bool  # whether it can be trained here
    assumed: tuple[str, ...] = ()
    anchors: Mapping[str, Anchor] | None = None
    seed: int = 0
    fleet: bool = False  # measured by an app that can play the answer

    @property
    def training(self) -> Training:
        """How its clients train."""
        local = self.recipe["local"]
        return Training(
            self.recipe["run"]["clients_per_round"], local["epochs"], local["batch"], local["lr"]
        )


def subject_of(
    source: Any,
    *,
    settings: Mapping[str, Any] | None = None,
    parameters: int | None = None,
    seed: int = 0,
    trust: bool = False,
) -> Subject:
    """A federation from a recipe's name, file or dict, from label counts, or from a run folder."""
    if isinstance(source, Subject):
        return source
    if isinstance(source, Mapping):
        return _of_recipe(source, settings or {}, parameters, seed)
    if isinstance(source, Counts):
        return _of_counts(source, settings or {}, parameters)
    if not isinstance(source, str | Path):
        return _of_counts(_counts(source), settings or {}, parameters)
    path = Path(source)
    if path.is_dir():
        return _of_run(path, settings or {}, parameters, trust)
    if str(source) in shipped_recipes() or path.suffix == ".toml":
        return _of_recipe(source, settings or {}, parameters, seed)
    if not path.exists():
        load(source)  # says what there is instead
    return _of_counts(read_counts(path), settings or {}, parameters)


def _counts(table: Any) -> Counts:
    """A table of counts, clients and labels by number."""
    array = np.asarray(table)
    if array.ndim != 2 or array.dtype.kind not in "iu":
        what = f"is {type(table).__name__}, neither a recipe nor whole numbers in rows"
        raise RecipeError("advise", what, "Give a recipe, a file, a run folder or a (K, C) array")
    clients, labels = ([str(i) for i in range(n)] for n in array.shape)
    return Counts(array, clients, labels)


# ---------------------------------------------------------------- three sources


def _of_recipe(
    source: str | Path | Mapping[str, Any],
    settings: Mapping[str, Any],
    parameters: int | None,
    seed: int,
) -> Subject:
    resolved = resolve(next(expand(override(load(source), settings))))
    if resolved["data"]["use"] == "custom" or resolved["partition"]["use"] == "custom":
        what = "its data are the user's own, which no recipe holds"
        raise RecipeError(f"recipe {resolved['name']}", what, "Give a file of label counts")
    counts = counts_of_data(resolved, seed=seed)
    size, assumed = _model_size(resolved, parameters)
    return Subject(counts, resolved, size, str(resolved["data"]["use"]), True, assumed, seed=seed)


def _of_counts(counts: Counts, settings: Mapping[str, Any], parameters: int | None) -> Subject:
    for key in settings:
        if key.startswith(OWN):
            what = "means nothing for label counts, which are divided already"
            raise RecipeError(f"--set {key}", what, "Leave it out")
    clients = len(counts.table) - len(counts.empty)
    base: Table = {
        "name": "counts",
        "data": {"use": "custom", "clients": clients},
        "local": load("fedavg")["local"],
        "run": {"clients_per_round": min(PER_ROUND, clients)},
    }
    resolved = resolve(override(base, settings))
    told = (("run.clients_per_round", "clients a round"), ("local.epochs", "local epochs"),
            ("local.batch", "examples a batch"), ("local.lr", "as learning rate"))  # fmt: skip
    assumed = [
        f"{resolved[key.partition('.')[0]][key.partition('.')[2]]} {words} (--set {key}=...)"
        for key, words in told
        if key not in settings
    ]
    size = parameters or PARAMETERS
    if parameters is None:
        assumed.append(f"a model of {PARAMETERS:,} parameters (--parameters N)")
    if not any(key.startswith("devices.") for key in settings):
        assumed.append("links of 10 Mbit/s, 1 ms and 30 W per example (--set devices....)")
    return Subject(counts, resolved, size, "", False, tuple(assumed))


def _of_run(
    folder: Path, settings: Mapping[str, Any], parameters: int | None, trust: bool
) -> Subject:
    counts, seed = counts_of_run(folder, trust=trust)
    run = Run.read(folder, trust=trust)
    federation, own = _federation_of(run)
    resolved = resolve(override(federation, settings))
    size, assumed = _model_size(resolved, parameters or _trained_size(run) or None)
    data = "" if own else str(resolved["data"]["use"])
    subject = Subject(counts, resolved, size, data, not own, assumed, seed=seed)
    return replace(subject, anchors=_anchor_of(run))


def subject_of_fleet(folder: Path, recipe: Mapping[str, Any]) -> Subject:
    """A fleet that was asked for its labels by a run without rounds: what its server knew then;
    ``recipe`` is the resolved one that its app trains with.
    """
    state = read_state(folder)
    if state.signal is None:
        remedy = "Ask the fleet: fedskew flower advise"
        raise RunFolderError(str(folder), "holds no label mixes of clients", remedy)
    counts = counts_of_signal(state.signal, f"fleet {folder}")
    size = int(state.models.shape[1])
    return Subject(counts, recipe, size, "", False, fleet=True)


def _federation_of(run: Run) -> tuple[Table, bool]:
    """The run's recipe without its method, and whether its data, split or model are the user's own:
    then a recipe can only name them "custom". Nothing that the folder names is imported.
    """
    tables = {key: run.recipe[key] for key in ("data", "local", "devices", "run")}
    dealt = {key: run.recipe[key] for key in ("partition", "model")}
    own = tables["data"]["use"] == "custom" or any(
        table["use"] == "custom" or names_code({"x": table}) for table in dealt.values()
    )
    if not own:
        return {"name": run.name, **tables, **dealt}, False
    data = {**tables["data"], "use": "custom"}
    return {"name": run.name, **tables, "data": data, "model": {"use": "custom"}}, True


def _anchor_of(run: Run) -> dict[str, Anchor] | None:
    """What the run itself says, if it was evaluated after training."""
    curve = run.curve
    if not (curve.rounds > 0).any():
        return None
    reached = last_mean(curve.rounds, curve.accuracy)
    return {run.name: Anchor(float(curve.rounds[-1]), reached)}


# ---------------------------------------------------------------- how large a model is


def _trained_size(run: Run) -> int:
    return int(run.models.shape[1]) if run.finished else 0


def _model_size(resolved: Mapping[str, Any], given: int | None) -> tuple[int, tuple[str, ...]]:
    """Parameters of the recipe's model, built once; assumed where torch is not here."""
    if given is not None:
        return given, ()
    if importlib.util.find_spec("torch") is None or resolved["model"]["use"] == "custom":
        return PARAMETERS, (f"a model of {PARAMETERS:,} parameters (--parameters N)",)
    module = factory_of(resolved, dataset_of(resolved))()
    return sum(parameter.numel() for parameter in module.parameters()), ()
