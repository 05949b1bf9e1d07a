"""The server's side of a fleet: the recipe played over it, its records, what its log says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.errors import RecipeError
from fedskew.experiment.backend import Backend
from fedskew.experiment.driver import drive
from fedskew.experiment.fleet import FLEET
from fedskew.experiment.run import Run
from fedskew.experiment.run_folders import RUNS, run_folder
from fedskew.experiment.world import population_of
from fedskew.records import Labels, read_json, write_sealed
from fedskew.runtime.flower.attendance import Patience
from fedskew.runtime.flower.server import FlowerRuntime
from fedskew.runtime.flower.superlink_watch import end_with_superlink
from fedskew.runtime.flower.task import FleetSettings, Task, server_store
from fedskew.types import RoundRecord

if TYPE_CHECKING:
    from flwr.serverapp import Grid

LETTING_GO_SECONDS = 30.0


def play(grid: Grid, flower_run: str, task: Task, settings: FleetSettings) -> Run:
    """Play a recipe over a fleet; see :func:`fedskew.experiment.fleet.serve`."""
    end_with_superlink()
    _check_possible(settings.recipe)
    out, resume = _folder(settings), bool(settings.config["resume"])
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
            rounds_over=fleet.rounds_over,
            unscored=fleet.take_unscored,
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
    tests = "" if record.covers is None else f", tested at {record.covers} clients only"
    return f"round {record.round}: {score}{len(record.loss)} of {asked} replied{failed}{tests}"
