"""From a recipe to a :class:`Run`: load the data, build the clients, start the runtime, play the
loop, keep the records.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedskew.accounting.devices import Devices, draw_population
from fedskew.accounting.energy import meter_for
from fedskew.data import Shards
from fedskew.errors import RecipeError, RunError, RunFolderError
from fedskew.experiment.run import Run
from fedskew.experiment.world import dataset_of, factory_of, shards_of, store_of
from fedskew.loop.federation import run as play
from fedskew.loop.federation import settle
from fedskew.loop.method import Setting
from fedskew.loop.training import score_clients
from fedskew.recipe import load, method_of, override, resolve
from fedskew.records import RUN, Labels, RunFolder, read_rounds
from fedskew.runtime.faults import Faults, FaultyRuntime
from fedskew.runtime.local.runtime import LocalRuntime
from fedskew.runtime.metered import MeteredRuntime
from fedskew.types import RoundRecord, Runtime, State

if TYPE_CHECKING:
    from torch import nn

OnRound = Callable[[RoundRecord], None]


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
    resolved = resolve(raw)
    folder = RunFolder(Path(out), resolved, seed, resume=resume) if out is not None else None
    try:
        # The workers have the cores: a second BLAS thread here would spin on one of theirs (56 ms
        # instead of 18 for hics at K = 1,000), and sums must not depend on how many cores a machine
        # has.
        with threadpool_limits(1):
            return _run(resolved, data, model, clients, seed, workers, folder, on_round)
    finally:
        if folder is not None:
            folder.close()


def _run(
    resolved: Mapping[str, Any],
    data: Any,
    model: Callable[[], nn.Module] | None,
    clients: Any,
    seed: int,
    workers: int,
    folder: RunFolder | None,
    on_round: OnRound | None,
) -> Run:
    state = folder.restore() if folder is not None else None
    if folder is not None and folder.finished:
        return Run.load(folder.path)
    if importlib.util.find_spec("torch") is None:
        raise RunError(
            "local runtime", "PyTorch is not installed", "Run: pip install 'fedskew[torch]'"
        )
    dataset = dataset_of(resolved, data)
    shards = shards_of(resolved, dataset, seed, clients)
    faults = Faults(**resolved["faults"])
    devices = Devices(**resolved["devices"])
    population = draw_population(
        shards.train.sizes, devices, seed, seconds_per_example=faults.seconds_per_example
    )
    factory = model or factory_of(resolved, dataset)
    meter = meter_for(resolved["run"]["energy"])
    if meter is not None:
        workers = _alone(workers)
    with LocalRuntime(store_of(shards), factory, workers=workers, population=population) as local:
        metered = None if meter is None else MeteredRuntime(local, meter)
        runtime: Runtime = metered or local
        runtime = FaultyRuntime(runtime, faults, seed) if faults.any else runtime
        setting = settle(method_of(resolved), runtime, seed)
        if folder is not None:
            _check_layout(state, setting, folder)
            facts = {"partition": asdict(shards.train.report), "client_test": shards.client_test}
            folder.begin(facts | ({} if meter is None else {"meter": meter.name}))
            folder.keep_labels(labels_of(shards))
        state, records = _play(
            setting, state, folder, resolved["run"]["checkpoint_seconds"], on_round, metered
        )
        return _finish(resolved, setting, shards, state, records, folder)


def _alone(workers: int) -> int:
    """One worker: clients that share a machine share its power, and nobody can tell whose it
    was.
    """
    if workers > 1:
        raise RunError(
            "run.energy", f"cannot be measured with {workers} workers at once", "Use --workers 1"
        )
    return 1


def _check_layout(state: State | None, setting: Setting, folder: RunFolder) -> None:
    if state is not None and state.models.shape[1] != setting.description.layout.size:
        what = f"holds a model of {state.models.shape[1]} numbers, this one has {setting.description.layout.size}"
        raise RunFolderError(str(folder.path), what, "Resume with the same data and model")


def _play(
    setting: Setting,
    state: State | None,
    folder: RunFolder | None,
    checkpoint_seconds: float,
    on_round: OnRound | None,
    metered: MeteredRuntime | None = None,
) -> tuple[State, list[RoundRecord]]:
    records = read_rounds(folder.path) if folder is not None else []
    saved = time.monotonic()
    for reached, record in play(setting, state):
        state = reached
        if metered is not None:
            record = replace(record, measured_joules=metered.take_joules())
        records.append(record)
        if folder is not None:
            folder.append(record)
            # Round 0 is always saved: a private signal draws noise nobody can draw again.
            if record.round == 0 or time.monotonic() - saved >= checkpoint_seconds:
                folder.save(state)
                saved = time.monotonic()
        if on_round is not None:
            on_round(record)
    if state is None:
        raise RecipeError("run.rounds", "nothing to do", "Give at least one round")
    if folder is not None:
        folder.save(state)
    return state, records


def _finish(
    resolved: Mapping[str, Any],
    setting: Setting,
    shards: Shards,
    state: State,
    records: list[RoundRecord],
    folder: RunFolder | None,
) -> Run:
    columns = client_columns(setting, shards, state)
    layout = setting.description.layout
    result = Run(
        resolved,
        setting.seed,
        records,
        columns,
        folder.path if folder else None,
        json.loads((folder.path / RUN).read_text()) if folder else {},
        labels=labels_of(shards),
        final_model=(state.models, layout),
    )
    if folder is not None:
        folder.finish(state.models, layout, columns, result.summary())
    return result


def labels_of(shards: Shards) -> Labels:
    """Who trains on how many examples of what."""
    return Labels(shards.label_counts, shards.dataset.class_names, shards.train.names or ())


def client_columns(setting: Setting, shards: Shards, state: State) -> dict[str, list[Any]]:
    """Per-client results of the final models, as columns."""
    size = setting.description.population.size
    home = np.zeros(size, np.int64) if state.home is None else np.asarray(state.home)
    columns: dict[str, list[Any]] = {
        "client": list(range(size)),
        "examples": setting.description.population.num_examples.tolist(),
        "times_selected": state.times_selected.tolist(),
        "last_loss": state.loss.tolist(),
        "slot": home.tolist(),
    }
    if state.clustering is not None:
        columns["cluster"] = state.clustering.labels.tolist()
    if shards.test is not None:
        scores = score_clients(setting, state, range(size), state.models, home, "test")
        columns |= {
            "test_examples": scores.num_examples.tolist(),
            "accuracy": scores.accuracy.tolist(),
            "test_loss": scores.loss.tolist(),
        }
    return columns
