"""A recipe on a fleet: what the two short files of a Flower app call.

::

    server_app.py   serve(grid, context, task, FOLDER)    plays the recipe, a checkpoint every round
    client_app.py   app = client_app(task, FOLDER)        answers with this client's own data

Settings come from Flower's run configuration (``[tool.flwr.app.config]`` and ``flwr run
--run-config``), see :data:`DEFAULTS`; ``recipe`` is a file beside the app, so that both sides hold
the same one.

Flower starts a process for every message at every client, so this module imports neither torch nor
the loop: the server's side is in :mod:`~fedskew.experiment.fleet_server`, and a client loads torch
when it has something to compute.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedskew.data import Shards
from fedskew.errors import RecipeError, did_you_mean
from fedskew.experiment.world import dataset_of, factory_of, shards_of
from fedskew.foreign import ForeignName
from fedskew.recipe import REGISTRIES, load, override, read_assignments, resolve, shipped_recipes
from fedskew.runtime.flower.client import make_client_app
from fedskew.runtime.flower.task import ClientData, FleetSettings, Task

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid
    from torch import nn

    from fedskew.experiment.run import Run

FLEET = "fleet.json"  # in the run folder: which Flower runs played it, and what each sent
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
    from fedskew.experiment.fleet_server import play

    return play(grid, str(context.run_id), task, read_settings(context.run_config, folder))
