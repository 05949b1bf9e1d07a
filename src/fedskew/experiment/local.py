"""A recipe on this machine: its data, dealt out to clients, behind the local runtime."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.accounting.energy import meter_for
from fedskew.errors import RecipeError, RunError
from fedskew.experiment.backend import Backend
from fedskew.experiment.device import check_device, on_device
from fedskew.experiment.driver import OnRound, drive
from fedskew.experiment.notebook import NotebookBar, both, in_notebook
from fedskew.experiment.own_split import own_split
from fedskew.experiment.run import Run
from fedskew.experiment.run_folders import check_resumable, path_of
from fedskew.experiment.world import (
    dataset_of,
    factory_of,
    flipped_clients,
    labels_of,
    population_of,
    shards_of,
    store_of,
)
from fedskew.recipe import load, num_rounds, override, resolve
from fedskew.records import RESULT
from fedskew.runtime.local.runtime import LocalRuntime
from fedskew.runtime.local.tasks import most_workers, usable_cores
from fedskew.runtime.metered import MeteredRuntime

if TYPE_CHECKING:
    from torch import nn


def run(
    recipe: str | Path | Mapping[str, Any],
    *,
    data: Any = None,
    model: Callable[[], nn.Module] | None = None,
    clients: Any = None,
    seed: int = 0,
    workers: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    settings: Mapping[str, Any] | None = None,
    on_round: OnRound | None = None,
) -> Run:
    """Train a federation and return what happened.

    Parameters
    ----------
    recipe
        Name of a shipped recipe, a path to a TOML file, or a dict.
    data
        Your own examples instead of the recipe's: ``(x, y)``, ``(x, y, x_test, y_test)``, or one or
        two labelled sets ``(train, test)``. x and y may be arrays, tensors, lists or data frames,
        labelled sets torch or Hugging Face datasets, data frames with a column "label", lists of
        ``(x, y)``. Images have their channels first or last, as the model's first convolution or
        the usual numbers tell; where neither does, you are asked.
    model
        Your own model: a function without arguments that returns a ``torch.nn.Module``.
    clients
        Your own split: one client id (a number or a text) per training example, instead of the
        recipe's partition and number of clients; -1 is nobody.
    seed, workers
        Root of every random stream; worker processes (0 = one per core, 1 = everything in this
        process).
    out, resume
        Run folder; ``resume`` goes on with a killed run and gives the same bytes as if it had not
        been killed.
    settings
        Changes to the recipe, for example ``{"local.lr": 0.1}``.
    on_round
        Called with each :class:`RoundRecord` as it happens.

    Examples
    --------
    >>> result = run("fedavg", settings={"run.rounds": 2}, workers=1)
    >>> result.rounds[-1].round, result.models.shape
    (2, (1, 2410))
    """
    seed, workers = check_arguments(seed, workers, model, on_round)
    folder = None if out is None else path_of("out", out)
    _check_resume(resume, folder)
    raw = override(load(recipe), settings or {})
    _check_heeded(settings or {}, data=data, model=model, clients=clients)
    if data is not None:
        raw = override(raw, {"data.use": "custom"})
    if model is not None:
        raw = {**raw, "model": {"use": "custom"}}
    if clients is not None:
        own = own_split(clients)
        raw = override(raw, {"data.clients": own.size})
        raw = {**raw, "partition": {"use": "custom", "sha256": own.digest}}
    resolved = resolve(raw)
    with _shown(resolved, on_round) as told:
        result = run_resolved(
            resolved,
            data=data,
            model=model,
            clients=clients,
            seed=seed,
            workers=workers,
            out=folder,
            resume=resume,
            on_round=told,
        )
    if "run.clients_per_round" in (settings or {}):  # else it is a recipe's default
        for note in result.notes:
            warnings.warn(note, stacklevel=2)
    return result


@contextmanager
def _shown(recipe: Mapping[str, Any], on_round: OnRound | None) -> Iterator[OnRound | None]:
    """Whom to tell of every round: in a notebook a bar too."""
    if not in_notebook():
        yield on_round
        return
    bar = NotebookBar(str(recipe["name"]), num_rounds(recipe))
    try:
        yield both(bar, on_round)
    finally:
        bar.close()


def _check_heeded(settings: Mapping[str, Any], **given: Any) -> None:
    """Refuse settings that nobody would look at, because something of the user's own stands in."""
    idle = {
        "data": ("data.use", "data.folder"),
        "model": ("model.",),
        "clients": ("partition.", "data.clients"),
    }
    for name, value in given.items():
        for key in settings if value is not None else ():
            if key.startswith(idle[name]):
                what = f"would change nothing: {name}= is given"
                raise RecipeError(f"settings {key}", what, "Leave one of them out")


def _check_resume(resume: Any, folder: Path | None) -> None:
    """Refuse to go on with nothing."""
    if not isinstance(resume, bool | np.bool_):
        raise RunError("resume", f"is {resume!r}", "Give True or False")
    if not resume:
        return
    if folder is None:
        what = "is True, but no out= says with what"
        raise RunError("resume", what, "Give out=, the folder of the run to go on with")
    check_resumable([folder])


def check_arguments(seed: Any, workers: Any, model: Any, on_round: Any) -> tuple[int, int]:
    """The seed and the number of workers, or an error that says what they must be."""
    numbers = []
    for name, value in (("seed", seed), ("workers", workers)):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or not 0 <= value < 2**63:
            bound = " below 2**63" if whole and value > 0 else ""
            raise RunError(name, f"is {value!r}", f"Give a whole number from 0{bound}")
        numbers.append(int(value))
    if numbers[1] > most_workers():
        said = f"{numbers[1]} workers for {usable_cores()} cores: {most_workers()} are started"
        warnings.warn(said, stacklevel=3)
        numbers[1] = most_workers()
    for name, value in (("model", model), ("on_round", on_round)):
        if value is not None and not callable(value):
            raise RunError(name, f"is {value!r}, which cannot be called", "Give a function")
    if hasattr(model, "state_dict") and not isinstance(model, type):  # without torch nobody knows
        what = f"is a {type(model).__name__} that is made already"
        remedy = "Give a function without arguments that makes one: model=lambda: MyModule()"
        raise RunError("model", what, remedy)
    return numbers[0], numbers[1]


def run_resolved(
    recipe: Mapping[str, Any],
    *,
    data: Any = None,
    model: Callable[[], nn.Module] | None = None,
    clients: Any = None,
    seed: int = 0,
    workers: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    on_round: OnRound | None = None,
) -> Run:
    """:func:`run` for a recipe that :func:`fedskew.recipe.resolve` has already checked."""
    if out is None or not (Path(out) / RESULT).is_file():
        _check_torch()  # before anything is written
        check_device(recipe["run"].get("device", "cpu"))
    return drive(
        recipe,
        seed,
        lambda reached: _local_backend(recipe, seed, data, model, clients, workers),
        out=None if out is None else Path(out),
        resume=resume,
        on_round=on_round,
    )


@contextmanager
def _local_backend(
    recipe: Mapping[str, Any],
    seed: int,
    data: Any,
    model: Callable[[], nn.Module] | None,
    clients: Any,
    workers: int,
) -> Iterator[Backend]:
    dataset = dataset_of(recipe, data, model)
    shards = shards_of(recipe, dataset, seed, clients)
    labels = labels_of(shards)
    factory = on_device(model or factory_of(recipe, dataset), recipe["run"].get("device", "cpu"))
    population = population_of(recipe, shards.train.sizes, seed)
    meter = meter_for(recipe["run"]["energy"])
    if meter is not None:
        workers = _one_worker(workers)
    facts: dict[str, Any] = {
        "partition": asdict(shards.train.report),
        "client_test": shards.client_test,
    }
    if data is not None:
        facts["data"] = {
            "examples": len(dataset.y),
            "test_examples": len(dataset.y_test),
            "shape": list(dataset.x.shape[1:]),
            "classes": dataset.num_classes,
        }
    if model is not None:
        facts["model"] = getattr(model, "__qualname__", type(model).__qualname__)
    flipped = flipped_clients(recipe, shards.clients, seed)
    with LocalRuntime(
        store_of(shards, flipped), factory, workers=workers, population=population
    ) as local:
        metered = None if meter is None else MeteredRuntime(local, meter)
        yield Backend(
            metered or local,
            clients_have_tests=lambda: shards.test is not None,
            labels=lambda: labels,
            facts=facts | ({} if meter is None else {"meter": meter.name}),
            owns_examples=True,
            measured_joules=None if metered is None else metered.take_joules,
        )


def _check_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise RunError(
            "local runtime", "PyTorch is not installed", "Run: pip install 'fedskew[torch]'"
        )


def _one_worker(workers: int) -> int:
    """Clients that share a machine share its power, and nobody can tell whose it was."""
    if workers > 1:
        raise RunError(
            "run.energy", f"cannot be measured with {workers} workers at once", "Use --workers 1"
        )
    return 1
