"""One recipe, played on one machine and over a fleet, leaves the same run folder, file by file.

What legitimately differs, and nothing else:

- wall times: ``times`` in rounds.jsonl, ``seconds`` in result.json, ``started`` in run.json, and
  ``sum``, the checksum of the files they stand in;
- names: ``out`` in result.json (the folder), ``flower_run`` in run.json, and fleet.json, which says
  what Flower carried;
- ``partition`` and ``client_test`` in run.json: how the examples were divided. On one machine we
  did that ourselves; the server of a fleet never sees it;
- labels.json: on one machine the examples are ours and it is always there. The server of a fleet
  keeps exact label counts only where the clients disclose them (``signal.use = "histogram"``).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from fake_grid import TASK, FakeGrid, server_context

from fedskew.errors import RecipeError
from fedskew.experiment.fleet import serve
from fedskew.experiment.local import run
from fedskew.recipe import load, override
from fedskew.runtime.flower.task import Task

CLIENTS = 8
SMALL = {
    "data.clients": CLIENTS,
    "run.rounds": 3,
    "run.clients_per_round": 4,
    "partition.use": "dirichlet",
    "local.epochs": 1,
}
SLOW = {"faults.slow_share": 0.5, "faults.seconds_per_example": 0.02, "faults.deadline_seconds": 9}
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg": ("fedavg", {}),
    "fedlecc": ("fedlecc", {"selection.top_clusters": 2}),
    "one model per cluster": ("clust_psi_pfl", {"clustering.count": 3}),
    "faults": ("fedavg", {"faults.dropout": 0.2, "faults.nan": 0.2, "run.min_ok": 0, **SLOW}),
    "pace without faults": ("fedavg", {"faults.seconds_per_example": 0.05}),
    "BatchNorm": (
        "fedavg",
        {"local.bn": "local", "run.evaluate_clients_every": 1, "model.use": "custom"},
    ),
}


def batch_norm_model():
    from torch import nn

    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10)
    )


def play_fleet(recipe: str, settings: dict[str, Any], out: Path, task: Task = TASK, **more: Any):
    config = {
        "recipe": recipe,
        "set": ";".join(f"{key}={value}" for key, value in settings.items()),
        "seed": 5,
        "out": str(out),
        "poll-seconds": 0.0,
        **more,
    }
    grid = FakeGrid(config, task=task)
    for client in range(CLIENTS):
        grid.join(client)
    return serve(grid, server_context(config), task, Path("."))


def play_both(name: str, folder: Path) -> tuple[Path, Path]:
    recipe, changes = RECIPES[name]
    settings = {**SMALL, **changes}
    own_model = settings.get("model.use") == "custom"
    task = replace(TASK, build_model=lambda _: batch_norm_model()) if own_model else TASK
    play_fleet(recipe, settings, folder / "fleet", task)
    run(
        override(load(recipe), {k: v for k, v in settings.items() if k != "model.use"}),
        model=batch_norm_model if own_model else None,
        seed=5,
        workers=1,
        out=folder / "local",
    )
    return folder / "local", folder / "fleet"


def without(content: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in names}


def comparable(folder: Path) -> dict[str, Any]:
    """Every file of a run folder, without what may differ (see above)."""
    files: dict[str, Any] = {
        path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"
    }
    files.pop("fleet.json", None)
    lines = files["rounds.jsonl"].decode().splitlines()
    files["rounds.jsonl"] = [without(json.loads(line), "times") for line in lines]
    files["result.json"] = without(json.loads(files["result.json"]), "seconds", "out", "sum")
    files["run.json"] = without(
        json.loads(files["run.json"]),
        # "model" names the function given to run(); an app builds its model itself
        *("started", "flower_run", "partition", "client_test", "sum", "model"),
    )
    return files


@pytest.mark.parametrize("name", RECIPES)
def test_the_folder_of_a_fleet_is_that_of_one_machine(name: str, tmp_path: Path):
    local, fleet = map(comparable, play_both(name, tmp_path))
    if load(RECIPES[name][0]).get("signal", {}).get("use") != "histogram":
        del local["labels.json"], local["result.json"]["sums"]["labels.json"]
    assert sorted(fleet) == sorted(local)
    for file in local:
        assert fleet[file] == local[file], file
    assert len(local["rounds.jsonl"]) == 4
    failures = {why for record in local["rounds.jsonl"] for why in record["failures"].values()}
    assert bool(failures) == (name == "faults")
    assert np.isfinite(local["result.json"]["simulated_seconds"])


def test_what_a_fleet_is_said_to_be_is_in_its_run(tmp_path: Path):
    played = play_fleet("fedavg", SMALL, tmp_path / "run")
    assert played.facts["flower_run"] == "7"
    assert played.facts["seed"] == 5


def test_the_last_round_and_the_final_clients_are_tested_with_the_same_statistics(tmp_path: Path):
    _, fleet = play_both("BatchNorm", tmp_path)
    columns = json.loads((fleet / "clients.json").read_text())
    last = json.loads((fleet / "rounds.jsonl").read_text().splitlines()[-1])
    mean = np.average(columns["accuracy"], weights=columns["test_examples"])
    assert mean == pytest.approx(last["client_accuracy"], abs=1e-12)


@pytest.mark.parametrize("energy", ["measured", "codecarbon"])
def test_energy_cannot_be_measured_on_a_fleet(energy: str, tmp_path: Path):
    with pytest.raises(RecipeError, match="cannot be measured on a fleet"):
        play_fleet("fedavg", {**SMALL, "run.energy": energy}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_server_uses_one_thread_for_its_own_sums(tmp_path: Path, monkeypatch):
    from threadpoolctl import threadpool_info

    threads: list[int] = []
    evaluate = TASK.build_model

    def watched(settings):
        threads.extend(
            pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"
        )
        return evaluate(settings)

    play_fleet("fedavg", SMALL, tmp_path / "run", replace(TASK, build_model=watched))
    assert threads
    assert set(threads) == {1}


# ---------------------------------------------------------------- labels


def labels_in(out: Path) -> bool:
    """Whether anything in the folder tells exact label counts."""
    return (out / "labels.json").exists()


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [("fedavg", {}), ("fedlecc", {"signal.use": "private"}), ("bacsa", {})],
    ids=["no signal", "private", "estimated"],
)
def test_no_exact_labels_are_kept_that_the_recipe_does_not_disclose(
    recipe: str, settings: dict[str, Any], tmp_path: Path
):
    if settings:
        pytest.importorskip("opendp")
    played = play_fleet(recipe, {**SMALL, **settings}, tmp_path / "run")
    assert played.labels is None
    assert not labels_in(tmp_path / "run")


def test_counts_a_client_sends_though_nobody_asked_are_not_kept(tmp_path: Path):
    """A client with another copy of the recipe discloses its labels; the server does not."""
    config = {
        "recipe": "fedavg",
        "set": ";".join(f"{key}={value}" for key, value in SMALL.items()),
        "out": str(tmp_path / "run"),
        "poll-seconds": 0.0,
    }
    grid = FakeGrid({**config, "recipe": "fedlecc"})
    for client in range(CLIENTS):
        grid.join(client)
    serve(grid, server_context(config), TASK, Path("."))
    assert not labels_in(tmp_path / "run")


def test_clients_that_join_late_are_in_the_label_counts_too(tmp_path: Path):
    settings = {**SMALL, "selection.top_clusters": 2}
    config = {
        "recipe": "fedlecc",
        "set": ";".join(f"{key}={value}" for key, value in settings.items()),
        "seed": 5,
        "out": str(tmp_path / "run"),
        "poll-seconds": 0.0,
        "wait-seconds": 0.0,
    }
    grid = FakeGrid(config)
    for client in range(CLIENTS - 1):
        grid.join(client)

    def tamper(node, question, reply):
        if question.metadata.message_type == "train" and len(grid.nodes) < CLIENTS:
            grid.join(CLIENTS - 1)
        return reply

    grid.tamper = tamper
    played = serve(grid, server_context(config), TASK, Path("."))
    local = run(override(load("fedlecc"), settings), seed=5, workers=1)
    assert np.array_equal(played.labels.counts, local.labels.counts)
    assert np.array_equal(type(played).load(tmp_path / "run").labels.counts, local.labels.counts)
