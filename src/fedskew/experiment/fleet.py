"""A recipe on a fleet: what the two short files of a Flower app call.

::

    server_app.py   serve(grid, context, task, FOLDER)     plays fedskew.loop.federation.run over the fleet, checkpoint every round
    client_app.py   app = client_app(task, FOLDER)         answers with this client's own data

Settings come from Flower's run configuration (``[tool.flwr.app.config]`` and ``flwr run
--run-config``), see :data:`DEFAULTS`; ``recipe`` is a file beside the app, so that both sides hold
the same one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.accounting.devices import Devices, draw_population
from fedskew.data import Shards
from fedskew.errors import RecipeError, RunFolderError, did_you_mean
from fedskew.experiment.run import Run
from fedskew.experiment.world import dataset_of, factory_of, shards_of
from fedskew.loop.federation import run as play
from fedskew.loop.federation import settle
from fedskew.loop.method import Setting
from fedskew.recipe import fingerprint, load, method_of, override, read_assignments, resolve
from fedskew.records import RunFolder, read_json, read_rounds, write_json
from fedskew.runtime.faults import Faults, FaultyRuntime
from fedskew.runtime.flower.client import make_client_app
from fedskew.runtime.flower.server import FlowerRuntime, Patience
from fedskew.runtime.flower.superlink_watch import end_with_superlink
from fedskew.runtime.flower.task import ClientData, FleetSettings, Task, server_store
from fedskew.types import RoundRecord, State

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
    "min-clients": 0,  # how many must be there; 0 = all at the start, one later
    "poll-seconds": 0.5,
}


# ---------------------------------------------------------------- settings


def read_settings(config: Mapping[str, Any], folder: Path) -> FleetSettings:
    """The recipe and the seed behind a run configuration; both sides read them alike.

    >>> read_settings({"recipe": "fedavg", "set": "run.rounds=3; local.lr=0.2"}, Path(".")).recipe["run"]["rounds"]
    3
    """
    for key in config:
        if key not in DEFAULTS:
            raise RecipeError(
                "run configuration", f"unknown key '{key}'", did_you_mean(key, DEFAULTS)
            )
    given = {**DEFAULTS, **config}
    beside = folder / str(given["recipe"])
    changes = read_assignments([part for part in str(given["set"]).split(";") if part.strip()])
    raw = override(load(beside if beside.is_file() else str(given["recipe"])), changes)
    return FleetSettings(resolve(raw), int(given["seed"]), given)


def _patience(config: Mapping[str, Any]) -> Patience:
    seconds = {name: float(config[f"{name}-seconds"]) for name in ("deadline", "wait", "poll")}
    return Patience(
        **{f"{name}_seconds": value for name, value in seconds.items()},
        min_clients=int(config["min-clients"]),
    )


def _folder(settings: FleetSettings) -> Path:
    group = f"{settings.recipe['name']}-{fingerprint(settings.recipe)[:8]}"
    return Path(str(settings.config["out"]) or Path("runs") / group / f"seed-{settings.seed}")


# ---------------------------------------------------------------- the recipe's own data and model, divided as on one machine


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
    own, test = shards.auxiliary, shards.central_test
    return ClientData(
        shards.x[own],
        shards.y[own],
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
    """Play the recipe over the fleet and keep its records; with ``resume`` go on where the last
    checkpoint was.
    """
    end_with_superlink()
    settings = read_settings(context.run_config, folder)
    records = _open(settings)
    try:
        state = records.restore()
        if records.finished:
            return Run.load(records.path)
        return _serve(grid, str(context.run_id), task, settings, records, state)
    finally:
        records.close()


def _open(settings: FleetSettings) -> RunFolder:
    """The run folder. On resume the ServerApp of a killed SuperLink may need some seconds to
    notice and let go of it.
    """
    resume, until = bool(settings.config["resume"]), time.monotonic() + LETTING_GO_SECONDS
    while True:
        try:
            return RunFolder(_folder(settings), settings.recipe, settings.seed, resume=resume)
        except RunFolderError as error:
            if not resume or "another process" not in error.what or time.monotonic() > until:
                raise
        time.sleep(1.0)


def _serve(
    grid: Grid,
    flower_run: str,
    task: Task,
    settings: FleetSettings,
    records: RunFolder,
    state: State | None,
) -> Run:
    recipe, seed = settings.recipe, settings.seed
    devices, faults = Devices(**recipe["devices"]), Faults(**recipe["faults"])
    fleet = FlowerRuntime(
        grid,
        server_store(
            None if task.load_test is None else task.load_test(settings), task.num_classes
        ),
        lambda: task.build_model(settings),
        recipe["data"]["clients"],
        patience=_patience(settings.config),
        draw=lambda sizes: draw_population(sizes, devices, seed),
        say=say,
    )
    try:
        setting = settle(
            method_of(recipe), FaultyRuntime(fleet, faults, seed) if faults.any else fleet, seed
        )
        if state is not None and state.models.shape[1] != setting.description.layout.size:
            raise RunFolderError(
                str(records.path),
                "holds a model of another size",
                "Resume with the same data and model",
            )
        records.begin({"flower_run": flower_run})
        sheet = _Sheet(records.path, flower_run, fleet, -1 if state is None else state.round)
        state = _play(setting, state, records, sheet)
        return _finish(settings, setting, fleet, records, state, sheet)
    finally:
        fleet.close()


def _play(setting: Setting, state: State | None, records: RunFolder, sheet: _Sheet) -> State:
    """Every round is on disk, record and checkpoint, before the next one begins."""
    for reached, record in play(setting, state):
        state = reached
        records.append(record)
        records.save(state)
        sheet.write(record.round)
        say(_line(record))
    if state is None:
        raise RecipeError("run.rounds", "nothing to do", "Give at least one round")
    return state


def _finish(
    settings: FleetSettings,
    setting: Setting,
    fleet: FlowerRuntime,
    records: RunFolder,
    state: State,
    sheet: _Sheet,
) -> Run:
    columns = _columns(fleet, state)
    rounds = read_rounds(records.path)
    layout = setting.description.layout
    run = Run(
        settings.recipe,
        settings.seed,
        rounds,
        columns,
        records.path,
        final_model=(state.models, layout),
    )
    sheet.write(state.round)
    records.finish(state.models, layout, columns, run.summary())
    return run


def _columns(fleet: FlowerRuntime, state: State) -> dict[str, list[Any]]:
    """Per-client results of the final models, as columns; who is not there has no accuracy."""
    size = len(state.loss)
    home = np.zeros(size, np.int64) if state.home is None else np.asarray(state.home)
    columns: dict[str, list[Any]] = {
        "client": list(range(size)),
        "examples": fleet.describe().population.num_examples.tolist(),
        "times_selected": state.times_selected.tolist(),
        "last_loss": state.loss.tolist(),
        "slot": home.tolist(),
    }
    if fleet.clients_have_tests:
        scores = fleet.evaluate_clients(range(size), state.models, home, "test")
        columns |= {
            "test_examples": scores.num_examples.tolist(),
            "accuracy": scores.accuracy.tolist(),
            "test_loss": scores.loss.tolist(),
        }
    return columns


# ---------------------------------------------------------------- what is written and said


class _Sheet:
    """``fleet.json``: one entry per Flower run that played this folder, with its messages and
    payload bytes.
    """

    def __init__(self, folder: Path, flower_run: str, fleet: FlowerRuntime, reached: int) -> None:
        self._path, self._fleet = folder / FLEET, fleet
        self._before = read_json(self._path)["runs"] if self._path.is_file() else []
        self._entry = {"flower_run": flower_run, "after_round": reached}

    def write(self, round: int) -> None:
        """Replace the present run's entry."""
        entry = {**self._entry, "last_round": round, **asdict(self._fleet.tally)}
        write_json(self._path, {"runs": [*self._before, entry]})


def say(text: str) -> None:
    """One line for whoever watches the ServerApp's log."""
    print(f"fedskew: {text}", flush=True)


def _line(record: RoundRecord) -> str:
    failed = "".join(f", client {client} {why}" for client, why in record.failures.items())
    score = "" if np.isnan(record.accuracy) else f"accuracy {record.accuracy:.4f}, "
    return f"round {record.round}: {score}{len(record.loss)} of {len(record.loss) + len(record.failures)} replied{failed}"
