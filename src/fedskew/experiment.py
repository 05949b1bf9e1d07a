"""From a recipe to a :class:`Run`: load the data, build the clients, start the runtime, play the loop, keep the records."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew import data as datasets
from fedskew import models
from fedskew.accounting.traffic import total_bytes
from fedskew.data import Dataset, Shards, build_shards, from_arrays, from_client_ids, from_torch
from fedskew.devices import Devices, draw_population
from fedskew.errors import RecipeError, RunError, RunFolderError
from fedskew.federation import run as play
from fedskew.federation import settle
from fedskew.method import Setting
from fedskew.recipe import find, load, method_of, override, resolve
from fedskew.records import CLIENTS, FINAL, RECIPE, RESULT, RUN, RunFolder, read_json, read_model, read_rounds
from fedskew.runtime.faults import Faults, FaultyRuntime
from fedskew.runtime.local.runtime import LocalRuntime
from fedskew.runtime.local.store import Store
from fedskew.types import Layout, Params, RoundRecord, Runtime, State

if TYPE_CHECKING:
    from torch import nn

OnRound = Callable[[RoundRecord], None]


@dataclass(frozen=True)
class Run:
    """A finished run: its recipe, every round, per-client results and the final model."""

    recipe: Mapping[str, Any]
    seed: int
    rounds: Sequence[RoundRecord]
    clients: Mapping[str, Any]  # column -> one value per client
    models: Params  # (S, D)
    layout: Layout
    folder: Path | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: str | Path) -> Run:
        """Read a finished run from its folder."""
        folder = Path(folder)
        if not (folder / RESULT).is_file():
            raise RunFolderError(str(folder), "is not the folder of a finished run", "Finish it with --resume")
        facts, clients = read_json(folder / RUN), read_json(folder / CLIENTS)
        vectors, layout = read_model(folder / FINAL)
        return cls(load(folder / RECIPE), facts["seed"], read_rounds(folder), clients, vectors, layout, folder, facts)

    @property
    def evaluations(self) -> list[tuple[int, float]]:
        """(round, accuracy) wherever it was measured."""
        return [(r.round, r.accuracy) for r in self.rounds if not np.isnan(r.accuracy)]

    def state_dict(self, slot: int = 0) -> dict[str, Params]:
        """The final model as named arrays, ready for ``module.load_state_dict`` after ``torch.from_numpy``."""
        return {name: array.copy() for name, array in self.layout.unpack(self.models[slot]).items()}

    def summary(self) -> dict[str, Any]:
        """The numbers that ``fedskew run --json`` prints."""
        accuracies = [accuracy for _, accuracy in self.evaluations] or [float("nan")]  # nan: there was nothing to test on
        transfers = [t for r in self.rounds for t in r.transfers]
        return {
            "name": self.recipe["name"],
            "seed": self.seed,
            "final_accuracy": accuracies[-1],
            "last5_accuracy": float(np.mean(accuracies[-5:])),
            "best_accuracy": max(accuracies),
            "final_loss": self.rounds[-1].test_loss,
            "rounds": self.rounds[-1].round,
            "bytes_down": total_bytes(transfers, "down"),
            "bytes_up": total_bytes(transfers, "up"),
            "bytes_d2d": total_bytes(transfers, "d2d"),
            "seconds": sum(r.seconds for r in self.rounds),
            "failures": sum(len(r.failures) for r in self.rounds),
            "out": None if self.folder is None else str(self.folder),
        }


# ---------------------------------------------------------------- the world of a recipe


def dataset_of(resolved: Mapping[str, Any], given: Any = None) -> Dataset:
    """The examples a recipe names, or those the user brings: a Dataset, arrays (x, y[, x_test, y_test]), torch Datasets."""
    if given is None:
        return datasets.load(resolved["data"]["use"], folder=resolved["data"]["folder"] or None)
    if isinstance(given, Dataset):
        return given
    if isinstance(given, tuple) and all(isinstance(part, np.ndarray) for part in given) and len(given) in (2, 4):
        return from_arrays(*given)
    return from_torch(*given) if isinstance(given, tuple) else from_torch(given)


def shards_of(resolved: Mapping[str, Any], dataset: Dataset, seed: int, client_ids: Any = None) -> Shards:
    """The examples dealt out to clients, by the recipe's partition or by the user's own client ids."""
    use, options = resolved["partition"]["use"], {k: v for k, v in resolved["partition"].items() if k != "use"}
    rule = find("partition", use) if client_ids is None else lambda pool, clients, rng: from_client_ids(client_ids)
    return build_shards(
        dataset,
        partition=rule,
        options=options if client_ids is None else {},
        clients=resolved["data"]["clients"],
        client_test=resolved["data"]["client_test"],
        test_fraction=resolved["data"]["test_fraction"],
        auxiliary=resolved["data"]["auxiliary"],
        holdout=resolved["data"]["holdout"],
        seed=seed,
    )


def store_of(shards: Shards) -> Store:
    """Shards in the form the local runtime shares between processes."""
    return Store(
        x=shards.x,
        y=shards.y,
        train_order=shards.train.order,
        train_offsets=shards.train.offsets,
        x_test=shards.x_test,
        y_test=shards.y_test,
        central_order=shards.central_test,
        test_order=shards.test.order if shards.test is not None else np.empty(0, np.int64),
        test_offsets=shards.test.offsets if shards.test is not None else np.zeros(shards.clients + 1, np.int64),
        num_classes=shards.dataset.num_classes,
        auxiliary_order=shards.auxiliary,
        mean=shards.mean,
        std=shards.std,
    )


def factory_of(resolved: Mapping[str, Any], dataset: Dataset) -> Callable[[], nn.Module]:
    """A function without arguments that builds the recipe's model for this dataset."""
    options = {key: value for key, value in resolved["model"].items() if key != "use"}
    factory, shape, num_classes = find("model", resolved["model"]["use"]), tuple(dataset.x.shape[1:]), dataset.num_classes
    return lambda: models.build(factory, shape, num_classes, **options)


# ---------------------------------------------------------------- running


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
        Your own examples instead of the recipe's: ``(x, y)``, ``(x, y, x_test, y_test)``, or torch Datasets ``(train, test)``.
    model
        Your own model: a function without arguments that returns a ``torch.nn.Module``.
    clients
        Your own split: one client id per training example, instead of the recipe's partition.
    seed, workers
        Root of every random stream; worker processes (0 = one per core, 1 = everything in this process).
    out, resume
        Run folder; ``resume`` goes on with a killed run and gives the same bytes as if it had not been killed.
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
        raise RunError("local runtime", "PyTorch is not installed", "Run: pip install 'fedskew[torch]'")
    dataset = dataset_of(resolved, data)
    shards = shards_of(resolved, dataset, seed, clients)
    faults = Faults(**resolved["faults"])
    population = draw_population(shards.train.sizes, Devices(**resolved["devices"]), seed)
    factory = model or factory_of(resolved, dataset)
    with LocalRuntime(store_of(shards), factory, workers=workers, population=population) as local:
        runtime: Runtime = FaultyRuntime(local, faults, seed) if faults.any else local
        setting = settle(method_of(resolved), runtime, seed)
        if folder is not None:
            _check_layout(state, setting, folder)
            folder.begin({"partition": asdict(shards.train.report), "client_test": shards.client_test})
        state, records = _play(setting, state, folder, resolved["run"]["checkpoint_seconds"], on_round)
        return _finish(resolved, setting, shards, state, records, folder)


def _check_layout(state: State | None, setting: Setting, folder: RunFolder) -> None:
    if state is not None and state.models.shape[1] != setting.description.layout.size:
        what = f"holds a model of {state.models.shape[1]} numbers, this one has {setting.description.layout.size}"
        raise RunFolderError(str(folder.path), what, "Resume with the same data and model")


def _play(
    setting: Setting, state: State | None, folder: RunFolder | None, checkpoint_seconds: float, on_round: OnRound | None
) -> tuple[State, list[RoundRecord]]:
    records = read_rounds(folder.path) if folder is not None else []
    saved = time.monotonic()
    for reached, record in play(setting, state):
        state = reached
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
    result = Run(resolved, setting.seed, records, columns, state.models, layout, folder.path if folder else None)
    if folder is not None:
        folder.finish(state.models, layout, columns, result.summary())
        result = replace(result, facts=json.loads((folder.path / RUN).read_text()))
    return result


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
    if shards.test is not None:
        scores = setting.runtime.evaluate_clients(range(size), state.models, home, "test")
        columns |= {
            "test_examples": scores.num_examples.tolist(),
            "accuracy": scores.accuracy.tolist(),
            "test_loss": scores.loss.tolist(),
        }
    return columns
