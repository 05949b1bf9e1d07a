"""A real fleet on this machine: a round against stock Flower's, how soon many nodes have joined.

    .venv-flower/bin/python benchmarks/fleet.py [rounds] [many] [ray]

``rounds``: 4 nodes, one epoch of an MLP at each, Flower's own FedAvg and ours in turn on the same
SuperLink and SuperNodes (which answer both from the same warm process); median of a round, the
first two of each run left out. ``many``: 30 nodes join and play 5 rounds. ``ray``: 100 clients on
Flower's simulation engine join. Exit code 1 if a limit is missed. Nothing else may run meanwhile.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from fedskew.deploy import local_fleet
from fedskew.deploy.app import write_app
from fedskew.deploy.fleet_sheet import Fleet
from fedskew.deploy.flower_cli import CONNECTION, call, list_runs, run_config
from fedskew.recipe import load, override, resolve
from fedskew.records import read_rounds
from table import Figure, report

APPS = Path(__file__).resolve().parent / "fleet_apps"
NODES, ROUNDS, WARM_UP, TURNS = 4, 8, 2, 3
MANY, MANY_ROUNDS, RAY = 30, 5, 100
MOST_OF_STOCK, JOIN_SECONDS, RAY_JOIN_SECONDS = 1.1, 180.0, 30.0


def our_app(folder: Path, clients: int, rounds: int, per_round: int) -> Path:
    """The job as an app of `fedskew flower new`."""
    settings = {
        "data.clients": clients, "data.client_test": "none", "local.epochs": 1, "local.batch": 64,
        "local.lr": 0.005, "run.rounds": rounds, "run.clients_per_round": per_round,
        "run.evaluate_every": 0,
    }  # fmt: skip
    write_app(folder, resolve(override(load("fedavg"), settings)))
    for name in ("task.py", "job.py"):
        shutil.copy(APPS / name, folder / name)
    return folder


def play_ours(home: Path, app: Path, out: Path) -> tuple[list[float], dict[int, float]]:
    """Seconds of every round; when each client had joined, after the command was given."""
    command = [sys.executable, "-m", "fedskew", "flower", "run", str(app), "--home", str(home)]
    began, joined = time.perf_counter(), {}
    with subprocess.Popen(
        [*command, "--out", str(out), "--config", "wait-seconds=600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        said = []
        for line in process.stdout or ():
            said.append(line)
            if " has joined (" in line:
                joined[int(line.split()[1])] = time.perf_counter() - began
    if process.returncode:
        sys.exit("".join(said[-40:]))
    rounds = [record for record in read_rounds(out) if record.round > 0]
    return [record.seconds for record in rounds], joined


def play_stock(fleet: Fleet, app: Path, out: Path) -> list[float]:
    """Seconds of every round of Flower's own FedAvg."""
    values = {"out": str(out), "rounds": ROUNDS, "nodes": NODES}
    answer = call(fleet.flower_home, "run", str(app), CONNECTION, *run_config(values))
    run_id = str(answer["run-id"])
    while not str((found := list_runs(fleet.flower_home, run_id)[0])["status"]).startswith("fin"):
        time.sleep(1.0)
    if found["status"] != "finished:completed":
        sys.exit(f"stock Flower: {found['status']}")
    return [float(seconds) for seconds in json.loads(out.read_text())]


def measure_rounds(folder: Path) -> list[Figure]:
    """Both in turn on one fleet."""
    ours = our_app(folder / "ours", NODES, ROUNDS, NODES)
    stock = folder / "stock"
    shutil.copytree(APPS / "stock", stock)
    shutil.copy(APPS / "job.py", stock / "job.py")
    home = folder / "home"
    fleet = local_fleet.up(home, NODES)
    seconds: dict[str, list[float]] = {"ours": [], "stock": []}
    try:
        for turn in range(TURNS):
            seconds["stock"] += play_stock(fleet, stock, folder / f"stock-{turn}.json")[WARM_UP:]
            seconds["ours"] += play_ours(home, ours, folder / f"run-{turn}")[0][WARM_UP:]
    finally:
        local_fleet.down(home)
    middle = {name: statistics.median(found) for name, found in seconds.items()}
    note = f"{middle['ours']:.2f} s against {middle['stock']:.2f} s, {TURNS} turns of {ROUNDS}"
    ratio = middle["ours"] / middle["stock"]
    return [Figure("round of 4 nodes / stock Flower's FedAvg", ratio, MOST_OF_STOCK, note)]


def measure_many(folder: Path) -> list[Figure]:
    """From `up` to the last of 30 hellos, then five rounds of ten."""
    app, home = our_app(folder / "many", MANY, MANY_ROUNDS, 10), folder / "home-many"
    began = time.perf_counter()
    local_fleet.up(home, MANY)
    up = time.perf_counter() - began
    try:
        rounds, joined = play_ours(home, app, folder / "run-many")
    finally:
        local_fleet.down(home)
    last = up + max(joined.values())
    note = f"{len(joined)} after {last:.0f} s; rounds of {statistics.median(rounds):.1f} s"
    return [
        Figure("30 nodes: `up` and joining / 3 minutes", last / JOIN_SECONDS, 1.0, note),
        Figure("rounds they played", len(rounds), MANY_ROUNDS, at_least=True),
    ]


def measure_ray(folder: Path) -> list[Figure]:
    """From the first hello to the last of 100 on Flower's simulation engine."""
    app, home = our_app(folder / "ray", RAY, 1, 10), folder / "home-ray"
    local_fleet.up(home, RAY, simulation=True)
    try:
        _, joined = play_ours(home, app, folder / "run-ray")
    finally:
        local_fleet.down(home)
    whole, first = max(joined.values()), min(joined.values())
    note = f"the first after {first:.1f} s, the last after {whole:.1f} s"
    share = (whole - first) / RAY_JOIN_SECONDS
    return [Figure("100 clients on Ray: joining / half a minute", share, 1.0, note)]


def main(wanted: Sequence[str]) -> int:
    parts = {"rounds": measure_rounds, "many": measure_many, "ray": measure_ray}
    missed = 0
    for name in wanted or parts:
        with tempfile.TemporaryDirectory(prefix="fleet-", ignore_cleanup_errors=True) as folder:
            missed |= report(f"a real fleet: {name}", parts[name](Path(folder)))
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
