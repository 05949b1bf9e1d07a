"""A recipe on a fleet: what the two short files of a Flower app call.

::

    server_app.py   serve(grid, context, task, FOLDER)    plays the recipe, a checkpoint every round
    client_app.py   app = client_app(task, FOLDER)        answers with this client's own data

Settings come from Flower's run configuration (``[tool.flwr.app.config]`` and ``flwr run
--run-config``), see :data:`DEFAULTS`; ``recipe`` is a file beside the app, so that both sides hold
the same one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.data import Shards
from fedskew.errors import RecipeError, did_you_mean
from fedskew.experiment.driver import Backend, drive
from fedskew.experiment.run import Run
from fedskew.experiment.run_folders import RUNS, run_folder
from fedskew.experiment.world import dataset_of, factory_of, population_of, shards_of
from fedskew.foreign import ForeignName
from fedskew.recipe import REGISTRIES, load, override, read_assignments, resolve, shipped_recipes
from fedskew.records import Labels, read_json, write_sealed
from fedskew.runtime.flower.client import make_client_app
from fedskew.runtime.flower.server import FlowerRuntime, Patience
from fedskew.runtime.flower.superlink_watch import end_with_superlink
from fedskew.runtime.flower.task import ClientData, FleetSettings, Task, server_store
from fedskew.types import RoundRecord

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid
    from torch import nn

FLEET = "fleet.json"  # in the run folder: which Flower runs played it, and what each sent
LETTING_GO_SECONDS = 30.0
DEFAULTS: dict[str, Any] = {
    "recipe": "recipe.toml",  # a file of the app, or the name of a shipped recipe
    "set": "",  # changes to it: "local.lr=0.1; run.rounds=5"
    "seed": 0,
    # run folder on the SuperLink's machine; "" = runs/NAME-FINGERPRINT/seed-N where it was started
    "out": "",
    "resume": False,
    "deadline-seconds": 300.0,  # for one batch of messages; a dead node is noticed after about 65 s
    "wait-seconds": 120.0,  # for clients to join
    "hello-seconds": 30.0,  # for a newcomer's first answer, before a round
    "min-clients": 0,  # how many must be there; 0 = all at the start, one later
    "poll-seconds": 0.5,
}


# ---------------------------------------------------------------- settings


def read_settings(config: Mapping[str, Any], folder: Path) -> FleetSettings:
    """The recipe and the seed behind a run configuration; both sides read them alike.

    >>> config = {"recipe": "fedavg", "set": "run.rounds=3; local.lr=0.2"}
    >>> read_settings(config, Path(".")).recipe["run"]["rounds"]
    3
    """
    for key in config:
        if key not in DEFAULTS:
            raise RecipeError(
                "run configuration", f"unknown key '{key}'", did_you_mean(key, DEFAULTS)
            )
    given = {**DEFAULTS, **config}
    changes = read_assignments([part for part in str(given["set"]).split(";") if part.strip()])
    raw = override(load(_recipe_file(folder, str(given["recipe"]))), changes)
    for stage in REGISTRIES:  # a run configuration is not part of the app that a node approved
        if f"{stage}.use" in changes:
            raw[stage]["use"] = ForeignName(raw[stage]["use"])
    return FleetSettings(resolve(raw), int(given["seed"]), given)


def _recipe_file(folder: Path, name: str) -> str | Path:
    """A file of the app, or a recipe that comes with fedskew: no other file of this machine."""
    beside = (folder / name).resolve()
    if name in shipped_recipes() and not beside.is_file():
        return name
    if not beside.is_relative_to(folder.resolve()) or not beside.is_file():
        what = f"'{name}' is no file of the app and no recipe of fedskew"
        raise RecipeError("run configuration, recipe", what, "Put it into the app's folder")
    return beside


def _patience(config: Mapping[str, Any]) -> Patience:
    seconds = {
        name: float(config[f"{name}-seconds"]) for name in ("deadline", "wait", "hello", "poll")
    }
    return Patience(
        **{f"{name}_seconds": value for name, value in seconds.items()},
        min_clients=int(config["min-clients"]),
    )


def _folder(settings: FleetSettings) -> Path:
    out = str(settings.config["out"])
    return Path(out) if out else run_folder(RUNS, settings.recipe, settings.seed)


# ---------------------------------------------------------------- the recipe's data and model


@lru_cache(maxsize=1)
def _shards(recipe: str, seed: int) -> Shards:
    resolved = json.loads(recipe)
    return shards_of(resolved, dataset_of(resolved), seed)


def _world(settings: FleetSettings) -> Shards:
    return _shards(json.dumps(settings.recipe), settings.seed)


def recipe_share(client: int, settings: FleetSettings) -> ClientData:
    """The part of the recipe's dataset that its partition gives to one client."""
    shards = _world(settings)
    rows, test = (
        _rows(shards.train, client),
        None if shards.test is None else _rows(shards.test, client),
    )
    return ClientData(
        shards.x[rows],
        shards.y[rows],
        None if test is None else shards.x_test[test],
        None if test is None else shards.y_test[test],
        shards.mean,
        shards.std,
    )


def _rows(part: Any, client: int) -> Any:
    if not client < part.clients:
        raise RecipeError(
            "data.clients",
            f"the recipe has {part.clients} clients, this node is number {client}",
            "Raise it",
        )
    return part.order[part.offsets[client] : part.offsets[client + 1]]


def recipe_test(settings: FleetSettings) -> ClientData:
    """The recipe's central test set, and the examples the server keeps for itself."""
    shards = _world(settings)
    kept, test = shards.auxiliary, shards.central_test
    return ClientData(
        shards.x[kept],
        shards.y[kept],
        shards.x_test[test],
        shards.y_test[test],
        shards.mean,
        shards.std,
    )


def recipe_model(settings: FleetSettings) -> nn.Module:
    """The recipe's model for the recipe's dataset."""
    return factory_of(settings.recipe, _world(settings).dataset)()


# ---------------------------------------------------------------- the two apps


def client_app(task: Task, folder: Path) -> ClientApp:
    """The ClientApp of a task whose recipe lies in ``folder``."""
    return make_client_app(task, lambda context: read_settings(context.run_config, folder))


def serve(grid: Grid, context: Context, task: Task, folder: Path) -> Run:
    """Play the recipe over the fleet and keep its records; ``resume`` goes on from a checkpoint."""
    end_with_superlink()
    settings = read_settings(context.run_config, folder)
    _check_possible(settings.recipe)
    out, resume = _folder(settings), bool(settings.config["resume"])
    flower_run = str(context.run_id)
    return drive(
        settings.recipe,
        settings.seed,
        lambda reached: _fleet_backend(grid, task, settings, flower_run, out, reached),
        out=out,
        resume=resume,
        # the ServerApp of a killed SuperLink may need some seconds to notice and let go of it
        wait_seconds=LETTING_GO_SECONDS if resume else 0.0,
        on_round=lambda record: say(_line(record)),
    )


def _check_possible(recipe: Mapping[str, Any]) -> None:
    """Refuse what cannot be had on a fleet."""
    if recipe["run"].get("device", "cpu") != "cpu":
        what = f"'{recipe['run']['device']}' is not for a fleet: clients train where they are"
        raise RecipeError("run.device", what, "Set run.device = 'cpu'")
    if recipe["run"]["energy"] != "modelled":
        raise RecipeError(
            "run.energy",
            f"'{recipe['run']['energy']}' cannot be measured on a fleet: "
            "the server does not see its clients' machines",
            "Set run.energy = 'modelled'",
        )


@contextmanager
def _fleet_backend(
    grid: Grid, task: Task, settings: FleetSettings, flower_run: str, out: Path, reached: int
) -> Iterator[Backend]:
    recipe, seed = settings.recipe, settings.seed
    fleet = FlowerRuntime(
        grid,
        server_store(
            None if task.load_test is None else task.load_test(settings), task.num_classes
        ),
        lambda: task.build_model(settings),
        recipe["data"]["clients"],
        patience=_patience(settings.config),
        draw=lambda sizes: population_of(recipe, sizes, seed),
        say=say,
    )
    sheet = _Sheet(out, flower_run, fleet, reached)
    try:
        yield Backend(
            fleet,
            clients_have_tests=lambda: fleet.clients_have_tests,
            labels=lambda: _disclosed_labels(recipe, fleet),
            facts={"flower_run": flower_run},
            save_every_round=True,
            after_round=sheet.write,
        )
    finally:
        fleet.close()


def _disclosed_labels(recipe: Mapping[str, Any], fleet: FlowerRuntime) -> Labels | None:
    """The label counts that clients gave away because the recipe's signal is ``histogram``; under
    any other signal nothing exact is kept, whatever somebody may have sent.
    """
    if recipe.get("signal", {}).get("use") != "histogram":
        return None
    counts = fleet.disclosed_counts()
    return Labels(counts, [str(number) for number in range(counts.shape[1])])


# ---------------------------------------------------------------- what is written and said


class _Sheet:
    """``fleet.json``: messages and payload bytes of each Flower run that played this folder."""

    def __init__(self, folder: Path, flower_run: str, fleet: FlowerRuntime, reached: int) -> None:
        self._path, self._fleet = folder / FLEET, fleet
        self._before = read_json(self._path)["runs"] if self._path.is_file() else []
        self._entry = {"flower_run": flower_run, "after_round": reached}

    def write(self, round: int) -> None:
        """Replace the present run's entry."""
        entry = {**self._entry, "last_round": round, **asdict(self._fleet.tally)}
        write_sealed(self._path, {"runs": [*self._before, entry]})


def say(text: str) -> None:
    """One line for whoever watches the ServerApp's log."""
    print(f"fedskew: {text}", flush=True)


def _line(record: RoundRecord) -> str:
    failed = "".join(f", client {client} {why}" for client, why in record.failures.items())
    score = "" if np.isnan(record.accuracy) else f"accuracy {record.accuracy:.4f}, "
    asked = len(record.loss) + len(record.failures)
    return f"round {record.round}: {score}{len(record.loss)} of {asked} replied{failed}"
