"""A recipe on this machine: its data, dealt out to clients, behind the local runtime."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedskew.accounting.energy import meter_for
from fedskew.errors import RunError
from fedskew.experiment.driver import Backend, OnRound, drive
from fedskew.experiment.run import Run
from fedskew.experiment.world import (
    dataset_of,
    factory_of,
    labels_of,
    population_of,
    shards_of,
    store_of,
)
from fedskew.recipe import load, override, resolve
from fedskew.runtime.local.runtime import LocalRuntime
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
        Your own examples instead of the recipe's: ``(x, y)``, ``(x, y, x_test, y_test)``, or torch
        Datasets ``(train, test)``.
    model
        Your own model: a function without arguments that returns a ``torch.nn.Module``.
    clients
        Your own split: one client id per training example, instead of the recipe's partition.
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
    raw = override(load(recipe), settings or {})
    if data is not None:
        raw = override(raw, {"data.use": "custom"})
    if model is not None:
        raw = {**raw, "model": {"use": "custom"}}
    return run_resolved(
        resolve(raw),
        data=data,
        model=model,
        clients=clients,
        seed=seed,
        workers=workers,
        out=out,
        resume=resume,
        on_round=on_round,
    )


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
    if importlib.util.find_spec("torch") is None:
        raise RunError(
            "local runtime", "PyTorch is not installed", "Run: pip install 'fedskew[torch]'"
        )
    dataset = dataset_of(recipe, data)
    shards = shards_of(recipe, dataset, seed, clients)
    labels = labels_of(shards)
    factory = model or factory_of(recipe, dataset)
    population = population_of(recipe, shards.train.sizes, seed)
    meter = meter_for(recipe["run"]["energy"])
    if meter is not None:
        workers = _one_worker(workers)
    facts = {"partition": asdict(shards.train.report), "client_test": shards.client_test}
    with LocalRuntime(store_of(shards), factory, workers=workers, population=population) as local:
        metered = None if meter is None else MeteredRuntime(local, meter)
        yield Backend(
            metered or local,
            clients_have_tests=lambda: shards.test is not None,
            labels=lambda: labels,
            facts=facts | ({} if meter is None else {"meter": meter.name}),
            measured_joules=None if metered is None else metered.take_joules,
        )


def _one_worker(workers: int) -> int:
    """Clients that share a machine share its power, and nobody can tell whose it was."""
    if workers > 1:
        raise RunError(
            "run.energy", f"cannot be measured with {workers} workers at once", "Use --workers 1"
        )
    return 1
